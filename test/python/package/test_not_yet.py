"""The features that docs/features.md lists as not supported yet: a request for one is an error that names it."""


def test_what_distributed_training_lacks_is_refused(run_python, tmp_path):
    script = f"""
        import torch
        import torch.distributed as dist
        dist.init_process_group(init_method="file://{tmp_path}/rendezvous", rank=0, world_size=1)
        x = torch.ones(3, device="fake")
        for run in (lambda: dist.recv(x), lambda: dist.group.WORLD._get_backend(x.device).mem_allocator,
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
    assert len(said) == 4 and "it ran" not in said and said[3] == "[1.0, 1.0, 1.0]", said
    assert "source" in said[0] and "mem_allocator" in said[1] and "shrink" in said[2], said
