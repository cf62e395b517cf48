"""What README says is not there yet: asking for it is an error that names it, and never something else without a word."""


def test_what_distributed_training_lacks_is_refused(run_python, tmp_path):
    script = f"""
        import torch
        import torch.distributed as dist
        dist.init_process_group(init_method="file://{tmp_path}/rendezvous", rank=0, world_size=1)
        x = torch.ones(3, device="fake")
        def captured():
            with torch.fake.graph(torch.fake.CUDAGraph() if hasattr(torch.fake, "CUDAGraph") else torch.fake.Graph()):
                dist.all_reduce(x)
        for run in (captured, lambda: dist.recv(x), lambda: dist.split_group(split_ranks=[[0]]),
                    lambda: dist.group.WORLD._get_backend(x.device).shrink([0])):
            try:
                run()
                print("it ran")
            except Exception as error:
                print(type(error).__name__, str(error).splitlines()[0])
        dist.all_reduce(x)
        print(x.cpu().tolist())
        dist.destroy_process_group()
    """
    said = run_python(script, TORCH_BACKEND="fake").stdout.splitlines()
    assert len(said) == 5 and "it ran" not in said and said[4] == "[1.0, 1.0, 1.0]", said
    assert "a collective" in said[0] and "source" in said[1] and "split" in said[2] and "shrink" in said[3], said
