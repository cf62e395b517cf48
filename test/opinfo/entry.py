"""Runs one entry of the operator database on the device and on the CPU and reports each step.

A record has: mode, sample, step ("forward" or "backward"), status, message. A step is announced ("started") before it
runs, so that the records show where a process crashed.
"""

import contextlib
import itertools
import os
import random

import torch
from compare import BATCH_NORMS, CHOICES, FLOAT_STATISTICS, narrowed, same_choice, same_distribution, same_kind, same_values, without_saved
from sample import Placed
from torch.utils._pytree import tree_leaves

# HAL_FAKE_ASYNC and HAL_FAKE_PROTECT of each mode. strict also forbids fallbacks, lazy defers work
# (torch_backend.lazy), lazy_device uses tensors of the type "lazy", and compiled is the default mode through
# torch.compile. A process opens its device once, so it runs modes with equal values.
MODES = {"async": ("1", "0"), "inline": ("0", "0"), "strict": ("0", "0"), "staged": ("1", "1"), "lazy": ("1", "0"), "lazy_device": ("1", "0"),
         "compiled": ("1", "0")}  # fmt: skip
FALLBACK = "fallback.strict(False)"  # in the message of a forbidden fallback


class Unsampled(Exception):
    """The database has no sample of this entry for this dtype."""


def entry_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def _seed():
    random.seed(0)
    torch.manual_seed(0)


def let_the_caller_seed():
    """Entries with random numbers seed and restore the generator: whether they generate numbers would not be visible.
    """
    from torch.testing._internal import common_methods_invocations as database

    database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


def _samples(op, dtype, backward, count):
    _seed()
    try:
        found = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), count))
    except Exception as error:
        raise Unsampled(f"{type(error).__name__}: {error}") from error
    if not found:
        raise Unsampled("the database has no sample")
    return found


def _cotangents(outputs):
    """Random gradients of the results: numbers that are exact in each dtype, so that all runs start from the same ones.
    """
    generator = torch.Generator().manual_seed(17)
    drawn = (torch.randn(2, *out.shape, generator=generator, dtype=torch.float32).bfloat16().float() for out in outputs)
    return [(torch.complex(*pair) if out.is_complex() else pair[0]).to(out.dtype) for pair, out in zip(drawn, outputs)]


def _gradients(result, operands):
    """Gradients of the operands for fixed random gradients of the results; [] if nothing is differentiable."""
    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    outputs = [t if t.layout == torch.strided else t.to_dense() for t in outputs]
    inputs = operands.differentiable()
    if not outputs or not inputs:
        return []
    cotangents = [c.to(out.device) for c, out in zip(_cotangents(outputs), outputs)]
    return list(torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True))


class Reference:
    """The CPU's outcome for a sample: results, operands afterwards, gradients, or the error that it raises."""

    def __init__(self, op, sample, backward):
        self.op, self.sample = op, sample
        self.result = self.gradients = self.refusal = None
        self.operands = Placed(sample, "cpu")
        _seed()
        state = torch.get_rng_state()
        try:
            self.result = self.operands.call(op)
        except Exception as error:
            self.refusal = error
            return
        self.draws = not torch.equal(state, torch.get_rng_state())
        if backward:
            try:
                self.gradients = _gradients(self.result, self.operands)
            except Exception:
                pass  # the CPU has no gradient here, so that there is no reference
        self._exact = {}

    def exact(self, what):
        """The same in double precision, or None: "result", "operands" or "gradients". Random numbers have no such
        reference."""
        if self.draws:
            return None
        if not self._exact:
            self._exact = {"result": None, "operands": None, "gradients": None}
            default = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)
            try:
                operands = Placed(self.sample, "cpu", wide=True)
                _seed()
                self._exact["result"] = operands.call(self.op)
                self._exact["operands"] = operands.tensors()
                self._exact["gradients"] = _gradients(self._exact["result"], operands)
            except Exception:
                pass  # the operator does not support doubles: the default tolerance applies
            finally:
                torch.set_default_dtype(default)
        return self._exact[what]


class Check:
    """One entry with one dtype on the device."""

    def __init__(self, op, dtype, plan, device, emit):
        self.op, self.device, self.emit, self.plan = op, device, emit, plan
        self.name, self.clean = entry_name(op), True
        self.backward = bool(plan["backward"] and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"))
        self.samples = _samples(op, dtype, self.backward, plan["samples"])
        self.references = {}

    def _place(self, sample):
        return Placed(sample, self.device, host=self.name in self.plan["host"])

    def run(self, mode):
        """Runs the samples one after the other, until one fails."""
        tried = False
        for i, sample in enumerate(self.samples):
            if i not in self.references:
                self.references[i] = Reference(self.op, sample, self.backward)
            if self.references[i].refusal is None:
                tried = True
                if not self._sample(mode, i, sample, self.references[i]):
                    return
            else:
                self._refused(mode, i, sample)
        if not tried:
            self.emit({"mode": mode, "status": "unsampled", "message": f"the CPU refuses: {self.references[0].refusal}"[:300]})

    def _refused(self, mode, i, sample):
        """If the CPU raises an error, the device may raise one or run, but it must remain usable."""
        self.emit({"mode": mode, "sample": i, "step": "forward", "status": "started"})
        try:
            self._place(sample).call(self.op)
            torch.accelerator.synchronize()
        except Exception:
            pass
        self.emit({"mode": mode, "sample": i, "step": "forward", "status": "refused"})

    def _sample(self, mode, i, sample, reference):
        steps = {}
        try:
            operands = self._place(sample)
        except NotImplementedError as error:  # no tensor of this kind on the device
            self.emit({"mode": mode, "status": "unsampled", "message": f"placing the sample: {error}"[:300]})
            return False
        ended = self._step(mode, i, "forward", steps, lambda: self._forward(mode, sample, operands, reference, steps))
        if ended != "pass":
            return False
        if reference.gradients is None:
            return True
        ended = self._step(mode, i, "backward", steps, lambda: self._backward(mode, operands, reference, steps))
        return ended in ("pass", "fallback")  # the forward part of the next sample may still be native

    def _step(self, mode, i, step, steps, work):
        record = {"mode": mode, "sample": i, "step": step}
        self.emit({**record, "status": "started"})
        try:
            message = work()
            status = "wrong" if message else "pass"
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            if mode == "lazy_device" and isinstance(error, NotImplementedError) and "cannot be a tensor of device type 'lazy'" in message:
                # the type has no sparse tensors, and raises an error
                self.emit({"mode": mode, "status": "unsampled", "message": message})
                return "unsampled"
            status = "fallback" if mode == "strict" and FALLBACK in str(error) else "error"
            self.clean = self.clean and status == "fallback"
        record.update(status=status, message=message or "", fallbacks=steps.pop("fallbacks", []))
        self.emit(record)
        return status

    def _device_work(self, mode, steps, work):
        """Runs the part of a step that belongs to the operator; preparation and comparison may fall back."""
        from torch_backend import fallback, lazy

        fallback.reset()
        with fallback.strict(mode == "strict"), lazy.record(self.device) if mode == "lazy" else contextlib.nullcontext():
            try:
                result = work()
                torch.accelerator.synchronize()  # an error of a queued kernel belongs to this operator
            finally:
                steps["fallbacks"] = [row.op for row in fallback.report()]
        return result

    def _called(self, mode):
        if mode != "compiled":
            return self.op
        torch._dynamo.reset()
        function = self.op.op
        return torch.compile(lambda *args, **kwargs: function(*args, **kwargs))

    def _forward(self, mode, sample, operands, reference, steps):
        _seed()
        called = self._called(mode)
        steps["result"] = ours = self._device_work(mode, steps, lambda: operands.call(called))
        theirs = reference.result
        if self.name in FLOAT_STATISTICS:
            ours = narrowed(ours, theirs)
        if self.name in BATCH_NORMS:
            ours, theirs = without_saved(ours, theirs)
        message = same_kind(ours, theirs, self.device)
        if not message and self.name in CHOICES:
            message, ours, theirs = same_choice(self.name, sample, ours, theirs)
        if message or self.name in self.plan["uninitialised"]:
            return message
        if reference.draws and self.name in self.plan["random"]:
            steps["random"] = True
            _seed()
            return same_distribution(ours, self._place(sample).call(called), theirs)
        message = same_values(ours, theirs, lambda: reference.exact("result"))
        if message:
            return message
        message = same_values(operands.tensors(), reference.operands.tensors(), lambda: reference.exact("operands"))
        return f"operands afterwards: {message}" if message else None

    def _backward(self, mode, operands, reference, steps):
        ours = self._device_work(mode, steps, lambda: _gradients(steps["result"], operands))
        for gradient, operand in zip(ours, operands.differentiable()):
            if gradient is not None and (gradient.shape != operand.shape or gradient.device != operand.device):
                return f"gradient {tuple(gradient.shape)} on {gradient.device} of an operand {tuple(operand.shape)}"
        return None if steps.get("random") else same_values(ours, reference.gradients, lambda: reference.exact("gradients"))


def check(op, dtype, plan, emit):
    """Checks an entry in the modes of the plan. Returns whether the process can run another check with the same modes:
    after an error the state of the device is unknown.

    The plan: modes with the same values in MODES, delay (microseconds at most, before each queued item), number of
    samples, backward, the plugin, and the names of entries whose results are "random" or "uninitialised" and of those
    that take "host" operands.
    """
    asynchronous, protected = MODES[plan["modes"][0]]
    os.environ.update(HAL_FAKE_ASYNC=asynchronous, HAL_FAKE_PROTECT=protected, HAL_FAKE_DELAY=str(plan["delay"]))
    torch.set_num_threads(1)
    import torch_backend

    torch_backend.use(plan["plugin"])
    device = torch_backend.device_name()
    if "lazy_device" in plan["modes"]:
        torch_backend.lazy.device.enable()
        device = "lazy"
    try:
        entry = Check(op, dtype, plan, device, emit)
    except Unsampled as reason:
        for mode in plan["modes"]:
            emit({"mode": mode, "status": "unsampled", "message": str(reason)[:300]})
        return True
    for mode in plan["modes"]:
        entry.run(mode)
    return entry.clean
