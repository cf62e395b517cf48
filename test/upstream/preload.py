"""The processes of a test are forked from a server, which imports this module: torch and the code of the tests, without a device. Starting Python and torch
for each process of each test would take most of the time."""

import importlib
import multiprocessing
import os

import pytest  # noqa: F401 - the main module of the processes
import torch

import sources

_SERVER = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def context(device):
    """Returns the context of multiprocessing that forks from the server. The server starts with the first process."""
    os.environ["UPSTREAM_DEVICE"] = device
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([__name__])
    before = {name: os.environ.get(name) for name in _SERVER}
    os.environ.update(_SERVER)
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return found


def run(environment, module, name, *arguments, **named):
    """In the process of a rank. The server's environment is that of the first test: each test has folders and ports of its own in it."""
    os.environ.clear()
    os.environ.update(environment)
    torch._import_device_backends()
    getattr(importlib.import_module(module), name)._run(*arguments, **named)


if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0" and "UPSTREAM_DEVICE" in os.environ:  # in the server
    os.environ.setdefault("BACKEND", "nccl")
    importlib.import_module(sources.TESTS)  # for the modules that it imports
    for original in (sources.COMMON, sources.TESTS):
        sources.compiled(original, os.environ["UPSTREAM_DEVICE"])
