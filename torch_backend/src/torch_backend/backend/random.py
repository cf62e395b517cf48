"""Seeds and generator states. These functions start no device, so a program may call them before first use."""

from __future__ import annotations

import torch

from torch_backend import _C

from ._utils import Device, existing_index


def default_generators() -> tuple:
    """Returns the default generators of all devices."""
    return tuple(_C.default_generator(index) for index in range(_C.device_count()))


def _get_generator(device: Device = None) -> torch.Generator:
    return _C.default_generator(existing_index(device))


def manual_seed(seed: int) -> None:
    """Seeds the current device's default generator."""
    _get_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the default generators of all devices; torch.manual_seed calls it."""
    for generator in default_generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device's default generator with a number that cannot be predicted."""
    _get_generator().seed()


def seed_all() -> None:
    """Seeds all default generators with one number that cannot be predicted."""
    if _C.device_count():
        manual_seed_all(_C.default_generator(0).seed())


def initial_seed() -> int:
    """Returns the current device's seed."""
    return _get_generator().initial_seed()


def get_rng_state(device: Device = None) -> torch.Tensor:
    """Returns the state of a device's default generator: 16 bytes, seed and offset."""
    return _get_generator(device).get_state()


def get_rng_state_all() -> list:
    """Returns the states of all devices."""
    return [generator.get_state() for generator in default_generators()]


def set_rng_state(new_state: torch.Tensor, device: Device = None) -> None:
    """Sets the state of a device's default generator."""
    _get_generator(device).set_state(new_state)


def set_rng_state_all(new_states) -> None:
    """Sets the states of all devices, in their order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _get_rng_state_offset(device: Device = None) -> int:
    return _get_generator(device).get_offset()


def _set_rng_state_offset(offset: int, device: Device = None) -> None:
    _get_generator(device).set_offset(offset)
