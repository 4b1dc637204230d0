"""What one router is started with, validated once. Bad values raise UsageError before anything is opened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from harness.errors import UsageError
from harness.topology import Side

# As SGLang's own limits of a handover; the engines give up a handover that stands still much earlier.
REQUEST_TIMEOUT_S = 300.0
# A second engine may die as the first did; a request that meets three in a row is better told than tried again.
ATTEMPTS = 3
WAIT_READY_S = 60.0
HTTP_PORT = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """`prefill` and `decode` are the engines' URLs, kept without a slash at the end; times are in seconds; an empty
    `nonce` becomes a random one.

    Raises UsageError naming the option, the value and what is allowed.
    """

    prefill: tuple[str, ...]
    decode: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 0
    request_timeout: float = REQUEST_TIMEOUT_S
    attempts: int = ATTEMPTS
    wait_ready: float = WAIT_READY_S
    nonce: str = ""

    def __post_init__(self) -> None:
        addresses: list[tuple[str, int]] = []
        for side, urls in ((Side.PREFILL, self.prefill), (Side.DECODE, self.decode)):
            if not urls:
                raise UsageError(f"no --{side.value} engine is given; at least one is needed")
            for url in urls:
                _check_url(f"--{side.value}", url)
                if host_and_port(url) in addresses:
                    raise UsageError(f"--{side.value} {url} is given twice; every engine is one side, once")
                addresses.append(host_and_port(url))
            # A frozen class sets its own fields so.
            object.__setattr__(self, side.value, tuple(url.rstrip("/") for url in urls))
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--port is {self.port}; allowed: 0 (any free port) to 65535")
        if self.attempts < 1:
            raise UsageError(f"--attempts is {self.attempts}; it must be 1 or more")
        if not 0 < self.request_timeout < math.inf:
            raise UsageError(f"--request-timeout is {self.request_timeout}; it must be above 0 seconds")
        if not 0 <= self.wait_ready < math.inf:
            raise UsageError(f"--wait-ready is {self.wait_ready}; it must be 0 seconds or more")


def host_and_port(url: str) -> tuple[str, int]:
    """Where an engine listens; an IPv6 address keeps its brackets, as in a URL."""
    parsed = urlsplit(url)
    host = parsed.hostname or ""
    return f"[{host}]" if ":" in host else host, parsed.port or HTTP_PORT


def _check_url(option: str, url: str) -> None:
    try:
        parsed = urlsplit(url)
        fits = _is_address(parsed)
    # A port that is no number.
    except ValueError:
        fits = False
    if not fits:
        raise UsageError(f"{option} is {url!r}; allowed: an engine's address, such as http://127.0.0.1:30000")


def _is_address(parsed: SplitResult) -> bool:
    extra = parsed.path.strip("/") or parsed.query or parsed.fragment or "@" in parsed.netloc
    return parsed.scheme == "http" and bool(parsed.hostname) and parsed.port != 0 and not extra
