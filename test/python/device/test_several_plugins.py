"""Several plugins in one process with one device type: "fake" (kernels, streams), "five" (five functions, no streams)
and "later" (asynchronous streams, operators by fallback). Each script runs in a separate process."""

import textwrap

import pytest

SETUP = """
import io, torch, torch_backend
assert [(p.name, p.first_device, p.device_count) for p in torch_backend.plugins()] == [("fake", 0, 2), ("five", 2, 2), ("later", 4, 3)]
FAKE, FIVE, LATER = "fake:0", "fake:2", "fake:4"
ALL = [f"fake:{index}" for index in range(torch.fake.device_count())]
assert len(ALL) == 7
"""


@pytest.fixture
def run_three(run_python, build_plugin):
    """Runs a script with the three plugins."""
    plugins = f"fake,{build_plugin('five')},{build_plugin('later')}"

    def run(script, **settings):
        settings = {"TORCH_BACKEND": plugins, "HAL_FAKE_DEVICES": 2, **settings}
        done = run_python(SETUP + textwrap.dedent(script), **settings)
        assert "validate: " not in done.stderr
        return done

    return run


@pytest.mark.parametrize("layers", ["", "validate"])
def test_copies_between_all_devices(run_three, layers):
    run_three(
        """
        truth = torch.arange(12.0).reshape(3, 4)
        for source in ALL:
            tensor = truth.to(source)
            assert tensor.device == torch.device(source)
            for target in ALL:
                for non_blocking in (False, True):
                    assert torch.equal(tensor.to(target, non_blocking=non_blocking).cpu(), truth), (source, target)
                    assert torch.equal(torch.empty(3, 4, device=target).copy_(tensor, non_blocking=non_blocking).cpu(), truth)
        for source in (FAKE, LATER):  # where dtype and layout can be changed before the bytes move
            for target in ALL:
                moved = truth.to(source).t().to(target, torch.float64)
                assert moved.stride() == (1, 4) and torch.equal(moved.cpu(), truth.t().double())
        """,
        HAL_LAYERS=layers,
    )


def test_a_copy_waits_for_the_work_of_both_sides(run_three):
    """Each step of "later" begins 20 ms after it was queued: a reader that does not wait sees the old numbers."""
    run_three(
        """
        for turn in range(5):
            ones, twos = torch.full((1000,), 1.0 + turn), torch.full((1000,), 2.0 + turn)
            far = torch.zeros(1000).to(LATER)
            far.copy_(ones.to(FAKE))  # queued on later's stream? then read from another plugin
            near = far.to(FAKE)
            assert torch.equal(near.cpu(), ones)
            # the destination is still being written by its own stream when the copy arrives
            other = torch.empty(1000, device="fake:5")
            other.copy_(twos.to("fake:5"), non_blocking=True)
            other.copy_(near)
            assert torch.equal(other.cpu(), ones)
            # and work after the copy on the source's stream does not change what was copied
            source = ones.to(FAKE)
            target = source.to(LATER, non_blocking=True)
            source.fill_(-1)
            assert torch.equal(target.cpu(), ones)
        """,
        LATER_DELAY_US=20000,
        HAL_FAKE_DELAY=2000,
    )


def test_streams_and_events_of_each(run_three):
    run_three(
        """
        for device in ALL:
            stream = torch.fake.Stream(device)
            assert stream.device == torch.device(device)
            assert torch.fake.current_stream(device) == torch.fake.default_stream(device)
            with torch.fake.stream(stream):
                assert torch.fake.current_stream(device) == stream and torch.fake.current_device() == stream.device.index
                others = [other for other in ALL if other != device]
                assert all(torch.fake.current_stream(other) == torch.fake.default_stream(other) for other in others)
            assert torch.fake.current_device() == 0
        for first in ALL:
            for second in ALL:
                source, target = torch.fake.Stream(first), torch.fake.Stream(second)
                with torch.fake.stream(source):
                    tensor = torch.ones(1000).to(first, non_blocking=True)
                event = torch.fake.Event()
                event.record(source)
                target.wait_event(event)  # of another plugin: the host waits
                if first[:-1] != second[:-1]:
                    assert event.query()
                with torch.fake.stream(target):
                    moved = tensor.to(second)
                target.synchronize()
                assert moved.sum().item() == 1000 if second in (FAKE, LATER) else torch.equal(moved.cpu(), torch.ones(1000))
        start, end = (torch.fake.Event(enable_timing=True) for _ in range(2))
        start.record(torch.fake.current_stream(FAKE))
        end.record(torch.fake.current_stream(LATER))
        start.synchronize()
        end.synchronize()
        try:
            start.elapsed_time(end)
        except RuntimeError as error:
            assert "device" in str(error)
        else:
            raise SystemExit("a time between two clocks")
        """
    )


def test_memory_is_kept_apart(run_three):
    run_three(
        """
        kept = {device: torch.empty(1 << 20, dtype=torch.uint8, device=device) for device in ALL[:-1]}
        for device in ALL[:-1]:
            assert torch.fake.memory_allocated(device) == 1 << 20
        assert torch.fake.memory_allocated(ALL[-1]) == 0
        del kept[FIVE]
        torch.fake.empty_cache()
        assert torch.fake.memory_reserved(FIVE) == 0 and torch.fake.memory_allocated(LATER) == 1 << 20
        shared = torch.ones(1000, device=FAKE)  # used by a stream of another plugin
        shared.record_stream(torch.fake.Stream(LATER))
        del shared
        torch.fake.synchronize(4)
        """
    )


def test_torch_load_maps_across_plugins(run_three):
    run_three(
        """
        for source in ALL:
            file = io.BytesIO()
            torch.save({"w": torch.arange(5.0).to(source)}, file)
            for target in [None, "cpu", *ALL]:
                file.seek(0)
                loaded = torch.load(file, map_location=target)["w"]
                assert loaded.device == torch.device(target or source) and loaded.tolist() == [0, 1, 2, 3, 4]
            file.seek(0)
            assert torch.load(file, map_location={source: LATER})["w"].device == torch.device(LATER)

        def saved_as(tag):  # a file of a process with other plugins
            original, torch.serialization.location_tag = torch.serialization.location_tag, lambda storage: tag
            file = io.BytesIO()
            try:
                torch.save(torch.arange(3.0), file)
            finally:
                torch.serialization.location_tag = original
            file.seek(0)
            return file

        for tag, place in {"five:1": "fake:3", "later": "fake:4", "later:2": "fake:6", "npu:1": "fake:1", "opencl:0": "fake:0"}.items():
            loaded = torch.load(saved_as(tag))
            assert loaded.device == torch.device(place) and loaded.tolist() == [0, 1, 2], tag
        for tag, words in {"five:2": "the plugin five has 2", "npu:7": "this process has 7", "later:x": "is not a device index", "fake:7": "7"}.items():
            try:
                torch.load(saved_as(tag))
            except RuntimeError as error:
                assert words in str(error), error
            else:
                raise SystemExit(f"{tag} was loaded")
        """
    )


def test_training_runs_on_each_plugin_with_the_cpus_losses(run_three):
    run_three(
        """
        def losses(device):
            torch.manual_seed(0)
            network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
            inputs = torch.randn(32, 8)
            network.to(device)
            optimizer = torch.optim.SGD(network.parameters(), 0.1)
            result = []
            for _ in range(4):
                optimizer.zero_grad()
                loss = network(inputs.to(device)).square().mean()
                loss.backward()
                optimizer.step()
                result.append(loss.item())
            return torch.tensor(result)

        truth = losses("cpu")
        for device in (FAKE, FIVE, LATER, "fake:6"):
            torch.testing.assert_close(losses(device), truth)
        """,
        LATER_DELAY_US=100,
    )


def test_indices_out_of_range_name_the_devices(run_three):
    run_three(
        """
        from contextlib import ExitStack
        uses = {
            "empty": lambda: torch.empty(1, device="fake:7"),
            "set_device": lambda: torch.fake.set_device(7),
            "with": lambda: ExitStack().enter_context(torch.fake.device(7)),
            "Stream": lambda: torch.fake.Stream("fake:7"),
            "synchronize": lambda: torch.fake.synchronize(7),
            "to": lambda: torch.ones(2).to("fake:7"),
            "properties": lambda: torch.fake.get_device_properties(7),
        }
        for name, use in uses.items():
            try:
                use()
            except (RuntimeError, IndexError) as error:
                text = str(error)
                assert "7" in text and len(text.splitlines()[0]) > 20, (name, text)
            else:
                raise SystemExit(f"{name} accepted device 7 of 7")
            assert torch.fake.current_device() == 0
        try:
            torch.ones(2, device=FAKE) + torch.ones(2).to(LATER)
        except RuntimeError as error:
            assert "fake:0" in str(error) and "fake:4" in str(error)
        else:
            raise SystemExit("mixed plugins")
        """
    )


def test_one_plugin_failing_leaves_the_others(run_python, build_plugin):
    broken = build_plugin("no_driver", "variant.c", VARIANT_NAME='"no_driver"', VARIANT_INIT="HAL_UNAVAILABLE")
    run_python(
        """
        import torch, torch_backend
        assert torch.fake.device_count() == 4
        for _ in range(2):
            try:
                torch.ones(2, device="fake:1")
            except RuntimeError as error:
                assert "no_driver, init: the driver is not running; start it" in str(error), error
            else:
                raise SystemExit("a device without a driver")
            assert torch.ones(4, device="fake:0").sum().item() == 4
            assert torch.equal(torch.ones(4, device="fake:0").to("fake:2").cpu(), torch.ones(4))
        """,
        TORCH_BACKEND=f"fake,{broken},{build_plugin('five')}",
        HAL_FAKE_DEVICES=1,
    )


def test_an_asynchronous_failure_of_one_plugin_is_reported_once(run_three):
    run_three(
        """
        host = torch.ones(10)
        try:
            far = torch.empty(10, device=LATER).copy_(host)
            far.cpu()
            torch.fake.synchronize(LATER)
        except RuntimeError as error:
            assert "later: a copy failed on purpose" in str(error)
        else:
            raise SystemExit("the failure was lost")
        assert torch.equal(host.to(LATER).cpu(), host) and torch.equal(host.to(FAKE).cpu(), host)
        """,
        LATER_FAIL=1,
    )


def test_a_skipped_plugin_of_a_list_is_reported_and_the_others_work(run_python, build_plugin):
    done = run_python(
        """
        import torch, torch_backend
        assert torch_backend.device_name() == "fake" and torch.fake.device_count() == 3
        (error,) = torch_backend.errors()
        assert error.startswith("nonsense: plugin 'nonsense' was not found: there is no libhal_nonsense.so in ") and ";" in error
        assert torch.ones(2, device="fake:0").sum().item() == 2
        """,
        TORCH_BACKEND=f"fake,nonsense,{build_plugin('five')}",
        HAL_FAKE_DEVICES=1,
    )
    assert done.stderr.count("plugin 'nonsense' was not found") == 1  # reported once


def test_the_first_plugin_names_the_device_type(run_python, build_plugin):
    run_python(
        """
        import torch, torch_backend
        assert torch_backend.device_name() == "five" and torch.five.device_count() == 3
        assert torch.ones(2, device="five:2").sum().item() == 2  # fake's device
        assert torch.equal(torch.ones(2, device="five:2").to("five:0").cpu(), torch.ones(2))
        """,
        TORCH_BACKEND=f"{build_plugin('five')},fake",
        HAL_FAKE_DEVICES=1,
    )


def test_a_process_exits_with_work_on_all_plugins(run_three):
    run_three(
        """
        kept = [torch.ones(1000).to(device, non_blocking=True) for device in ALL]
        kept.append(kept[0].to(LATER, non_blocking=True))
        """
    )
