"""A compiled region that runs as a graph where it can."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

import torch

from .choice import sentence
from .recording import Recording, is_managed

COPIES = 4  # recordings for the same inputs, whose outputs the program uses at the same time
RECORDINGS = 32  # of a region; each one has memory of its own
WAITING = 64  # kinds of inputs that have been seen once


class Region:
    """Runs a compiled function of a list of inputs, which it empties. A thread records it at the second call with the
    same integers and addresses, and replays it from then on.

    - Inputs at `static` (parameters) have fixed addresses: another address is another recording. The address of
      another input is fixed until it changes; from then on the input is copied at each call.
    - Outputs lie in memory of the graph. While the program uses an output, the next call uses another recording, and
      from then on a small output is copied. With `COPIES` recordings in use, a call runs without a graph.
    - `skip` is called once with the reason, when the region runs without graphs. `locate` returns the operator that has
      raised an error, with its line.
    """

    def __init__(
        self,
        model: Callable,
        static: Sequence[int],
        mutated: Sequence[int],
        device_index: int,
        skip: Callable[[str], None],
        is_backward: bool = False,
        locate: Callable[[BaseException], str] = lambda error: "",
    ):
        self._boxed_call = True  # torch copies it to the function that it wraps around this object
        self._model, self._device_index, self._skip, self._locate = model, device_index, skip, locate
        # The tensors that the forward pass saved are static if it runs as a graph, else nothing is known about them.
        self._static = frozenset() if is_backward else frozenset(static)
        self._mutated = frozenset(mutated)
        self._local = threading.local()
        self._reason = ""

    def __call__(self, inputs: list) -> list:
        if self._reason or torch.accelerator.current_stream(self._device_index).is_capturing():
            return self._model(inputs)
        if torch.accelerator.current_device_index() == self._device_index:
            return self._call(inputs)
        with torch.accelerator.device_index(self._device_index):
            return self._call(inputs)

    def _call(self, inputs: list) -> list:
        try:
            recordings = self._local.recordings
        except AttributeError:
            recordings = self._local.recordings = _Recordings(self._static, self._mutated, self._locate)
        with torch.no_grad() if torch.is_grad_enabled() else contextlib.nullcontext():
            try:
                recording = recordings.find(self._model, inputs)
            except _Unsupported as unsupported:
                self._give_up(recordings, str(unsupported))
                return self._model(inputs)
            if recording is None:
                return self._model(inputs)
            results = recording.run(inputs, recordings.cloned)
        if (failure := recording.take_failure()) is not None:
            raise RuntimeError(f"a kernel of a compiled region failed: {failure}")
        return results

    def _give_up(self, recordings: _Recordings, reason: str) -> None:
        self._reason = reason
        recordings.clear()
        self._skip(sentence(reason))


def _has_value(one) -> bool:
    """Returns whether an input is a tensor of the host, whose values a graph would store, that no recording returned."""
    return isinstance(one, torch.Tensor) and one.device.type == "cpu" and not is_managed(one)


class _Unsupported(RuntimeError):
    """Why a region cannot be a graph."""


class _Recordings:
    """The recordings of a region, of one thread."""

    def __init__(self, static: frozenset[int], mutated: frozenset[int], locate: Callable[[BaseException], str]):
        self._static, self._mutated, self._locate = static, mutated, locate
        self._varying: set[int] = set()  # the places of the inputs that are copied
        self._by_key: dict[tuple, list[Recording]] = {}
        self._waiting: dict[tuple, None] = {}
        self._last: dict[int, int] = {}
        self.cloned: set[int] = set()  # the numbers of the outputs that are copied

    def clear(self) -> None:
        self._by_key.clear()
        self._waiting.clear()

    def find(self, model: Callable, inputs: list) -> Recording | None:
        """Returns a recording for these inputs whose outputs are free; None if the function has to be called."""
        key = self._key(inputs)
        recordings = self._by_key.get(key)
        if recordings is None:
            if self._learn(inputs) or key not in self._waiting:
                if len(self._waiting) >= WAITING:
                    self._waiting.clear()
                self._waiting[self._key(inputs)] = None
                return None
            recordings = self._by_key[key] = []
        for recording in recordings:
            busy = recording.busy()
            if not busy:
                return recording
            self.cloned.update(recording.output_numbers([memory for memory in busy if memory.is_small()]))
        if len(recordings) >= COPIES or any(_has_value(one) for one in inputs):
            return None
        return self._record(model, inputs, recordings)

    def _key(self, inputs: list) -> tuple:
        """Returns the addresses of the inputs that are not copied, and the values of those that are not tensors."""
        varying = self._varying
        values = [
            one if not isinstance(one, torch.Tensor) else one.data_ptr() if place not in varying or is_managed(one) else None
            for place, one in enumerate(inputs)
        ]
        return torch.is_inference_mode_enabled(), *values

    def _learn(self, inputs: list) -> bool:
        """Finds the inputs whose addresses change from call to call, and copies them from now on. Returns whether there
        is a new one.
        """
        addresses = {place: one.data_ptr() for place, one in enumerate(inputs) if isinstance(one, torch.Tensor) and not is_managed(one)}
        new = {place for place, address in addresses.items() if place not in self._static and self._last.get(place, address) != address}
        new -= self._varying
        self._last.update(addresses)
        if new:
            self._varying |= new
            self.clear()  # the keys change
        return bool(new)

    def _record(self, model: Callable, inputs: list, recordings: list) -> Recording:
        if sum(map(len, self._by_key.values())) >= RECORDINGS:
            raise _Unsupported(f"{RECORDINGS} different combinations of integers and addresses of parameters")
        for place, one in enumerate(inputs):
            if not isinstance(one, (torch.Tensor, torch.Generator, int, float, bool, type(None))):
                raise _Unsupported(f"input {place}, a {type(one).__name__}")
        copied = [place for place in sorted(self._varying) if not is_managed(inputs[place])]
        try:
            recording = Recording(model, inputs, copied, self._mutated)
        except (RuntimeError, NotImplementedError) as error:
            operator = self._locate(error)
            raise _Unsupported(f"work that cannot be recorded{f' ({operator})' if operator else ''}: {error}") from error
        recordings.append(recording)
        return recording
