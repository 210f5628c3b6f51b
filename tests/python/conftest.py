"""What every test shares: the backend under test, and reproducible Hypothesis runs."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from libsumtree.backends import AUTO_VARIABLE, BACKENDS

settings.register_profile(
    "reproducible",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("reproducible")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend", choices=BACKENDS, default="cpu", help="the backend that the tests run on"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs device memory that is the host's: the host must stand in for a GPU."""
    if config.getoption("--backend") == "gpu" and "LIBSUMTREE_GPU_ON_HOST" in os.environ:
        return
    needs = [item for item in items if item.get_closest_marker("gpu_on_host")]
    config.hook.pytest_deselected(items=needs)
    items[:] = [item for item in items if item not in needs]


def pytest_configure(config: pytest.Config) -> None:
    # What "auto" means, here and in every process that a test starts.
    os.environ[AUTO_VARIABLE] = config.getoption("--backend")


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the backend under test."""
    return str(request.config.getoption("--backend"))
