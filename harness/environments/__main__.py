"""`python -m harness.environments` builds environments of engines."""

import sys

from harness.environments.command import main

sys.exit(main())
