"""The demo fulfills its documented properties, and reports it by its exit code."""

import json
import sys

import pytest
import warm_interpreter

from torch_backend import demo


def run_demo(tmp_path, *arguments, quiet=("--quiet",), **environment):
    """Runs the demo in a separate process; returns the completed process."""
    import os

    command = [sys.executable, "-P", "-m", "torch_backend.demo", *quiet, "--json", "--picture", str(tmp_path / "loss.png")]
    return warm_interpreter.run([*command, *arguments], env={**os.environ, "TORCH_BACKEND": "fake", **environment}, timeout=300, cwd=tmp_path)


@pytest.mark.parametrize("asynchronous", ["0", "1"])
def test_demo_trains_on_the_device_as_on_the_cpu(tmp_path, asynchronous):
    done = run_demo(tmp_path, HAL_FAKE_ASYNC=asynchronous)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout[done.stdout.index("{") :])
    assert summary["accuracy"] >= 0.93
    assert summary["parameter_device"] == "fake:0"
    assert summary["native_share"] >= 0.6
    assert summary["loss_difference"] <= 1e-4
    assert summary["operators"], "the report names the operators"
    assert (tmp_path / "loss.png").read_bytes()[:4] == b"\x89PNG"


def test_demo_runs_on_the_second_device(tmp_path):
    done = run_demo(tmp_path, "--device", "fake:1", "--epochs", "12", HAL_FAKE_DEVICES="2")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout[done.stdout.index("{") :])["parameter_device"] == "fake:1"


def test_demo_with_few_epochs_compares_with_the_accuracy_of_the_cpu(tmp_path):
    done = run_demo(tmp_path, "--epochs", "1", "--lr", "0.000001", quiet=())
    assert done.returncode == 0, done.stderr
    bars = [line for line in done.stderr.splitlines() if line.startswith("training on")]
    assert len(bars) == 2 and "\r" not in done.stderr, done.stderr  # one line a stage, since it is a file
    summary = json.loads(done.stdout[done.stdout.index("{") :])
    assert demo.failures(summary) == []
    (sentence,) = demo.failures({**summary, "accuracy": summary["cpu_accuracy"] - 0.1})
    assert sentence.startswith("accuracy ") and "below" in sentence
    (sentence,) = demo.failures({**summary, "cpu_accuracy": 0.99})  # as low as this one's
    assert "is below 0.9" in sentence


def test_demo_refuses_a_device_that_does_not_exist(tmp_path):
    done = run_demo(tmp_path, "--device", "fake:5")
    assert done.returncode != 0
    assert "5" in done.stderr


def test_the_demo_is_content_with_a_right_plugin_of_five_functions(tmp_path, build_plugin):
    """Without kernels, no native share is required; all other properties must hold."""
    done = run_demo(tmp_path, TORCH_BACKEND=str(build_plugin("five")), HAL_ALLOW_UNSAFE_PLUGINS="1")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout[done.stdout.index("{") :])
    assert summary["parameter_device"] == "five:0" and not summary["has_kernels"] and summary["native_share"] < 0.6
    assert summary["accuracy"] >= 0.93 and summary["loss_difference"] <= 1e-4


def test_the_smoothed_curve_is_an_unbiased_moving_average():
    from torch_backend import demo

    assert demo.smoothed([3.0] * 10) == pytest.approx([3.0] * 10)
    noisy = [1.0 + (-1) ** step for step in range(200)]
    assert max(abs(value - 1.0) for value in demo.smoothed(noisy)[100:]) < 0.06
    assert demo.smoothed([]) == []
