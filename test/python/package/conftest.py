"""Libraries of custom operators, built once per process for all tests of this folder."""

import pytest
from custom_libraries import EXAMPLE, KINDS, build, copied

ONE_TORCH = ("SOURCES ops.c)", "SOURCES ops.c ONE_TORCH)")
LIBRARIES = {
    "example_ops": (EXAMPLE,),  # for every torch
    "single_ops": (EXAMPLE, ("example", "single"), ("EXAMPLE", "SINGLE"), ONE_TORCH),
    "kinds": (KINDS,),  # for one PyTorch, as the stable ABI has no Scalar
    "others": (KINDS, ("kinds", "others"), ("KINDS", "OTHERS"), ("Scalar number", "float number")),
}


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """Builds all libraries; returns {name: (the build folder, the output of CMake)}."""
    folder = tmp_path_factory.mktemp("custom")
    return dict(zip(LIBRARIES, build(*(copied(source, folder / name, *changes) for name, (source, *changes) in LIBRARIES.items()))))


@pytest.fixture(scope="session")
def built(libraries):
    """The build folder of the guide's example."""
    return libraries["example_ops"][0]
