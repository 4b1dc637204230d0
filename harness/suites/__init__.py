"""The suite language: YAML files in, selected jobs out. See `docs/suites.md` for the language itself.

The way through: `load_catalogue` → `select` → `expand` → `Job`. Importing this room loads pydantic and PyYAML
only.
"""

from harness.suites.catalogue_files import suite_files
from harness.suites.check_list import CheckSpec
from harness.suites.check_params import (
    CHECK_PARAMS,
    AccuracyParams,
    ActiveParams,
    BatchParams,
    CapacityParams,
    CapsParams,
    CheckParams,
    DecodeSanityParams,
    DrainedParams,
    InterruptParams,
    Moment,
    OwnProbe,
    ParityParams,
    RowsParams,
    SourcesParams,
    TransferParams,
    Victim,
)
from harness.suites.diagnose import describe
from harness.suites.durations import parse_duration, show_duration
from harness.suites.engine_args import ArgValue
from harness.suites.extras import Extra, installed_extras
from harness.suites.jobs import Job, SourceFile, expand, extras_needed, job_id
from harness.suites.loader import check_catalogue, load_catalogue, load_suite
from harness.suites.model import (
    Baseline,
    EngineKind,
    EngineSpec,
    Needs,
    ParallelSpec,
    Profile,
    ProfileName,
    RouterSpec,
    Skip,
    SourceSpec,
    SourceTests,
    SuiteFile,
)
from harness.suites.reference_args import parse_reference_arg
from harness.suites.schema import json_schema
from harness.suites.select import named_by_profile, select, select_jobs
from harness.suites.source_tests import idle_exclusions, read_source_tests, source_jobs
from harness.suites.suite import Catalogue, Suite, SuitePoint
from harness.suites.targets import Target, parse_target
from harness.suites.yaml_marks import MarkedDict, MarkedList, load_yaml, mark_at, parse_yaml

__all__ = [
    "CHECK_PARAMS",
    "AccuracyParams",
    "ActiveParams",
    "ArgValue",
    "Baseline",
    "BatchParams",
    "CapacityParams",
    "CapsParams",
    "Catalogue",
    "CheckParams",
    "CheckSpec",
    "DecodeSanityParams",
    "DrainedParams",
    "EngineKind",
    "EngineSpec",
    "Extra",
    "InterruptParams",
    "Job",
    "MarkedDict",
    "MarkedList",
    "Moment",
    "Needs",
    "OwnProbe",
    "ParallelSpec",
    "ParityParams",
    "Profile",
    "ProfileName",
    "RouterSpec",
    "RowsParams",
    "Skip",
    "SourceFile",
    "SourceSpec",
    "SourceTests",
    "SourcesParams",
    "Suite",
    "SuiteFile",
    "SuitePoint",
    "Target",
    "TransferParams",
    "Victim",
    "check_catalogue",
    "describe",
    "expand",
    "extras_needed",
    "idle_exclusions",
    "installed_extras",
    "job_id",
    "json_schema",
    "load_catalogue",
    "load_suite",
    "load_yaml",
    "mark_at",
    "named_by_profile",
    "parse_duration",
    "parse_reference_arg",
    "parse_target",
    "parse_yaml",
    "read_source_tests",
    "select",
    "select_jobs",
    "show_duration",
    "source_jobs",
    "suite_files",
]
