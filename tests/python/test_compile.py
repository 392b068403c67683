"""torch.compile over the CUDA double: real Inductor, Triton and ptxas; kernels compute nothing.

A GPT and a U-Net (cuDNN off: it is not doubled), compiled by default and with CUDA graphs, under
torch alone and under door A: the same requests, the same statistics to the byte. Door B: compiled
by default; CUDA graphs are refused in one line.

Compilation is dear. All arms share what the first one compiled, in one test, since xdist may give
each of several tests to another worker, and each worker would compile for itself.
"""

import pathlib

import cuda_double

# Where door B's rules are not the native allocator's: test_door_b.py says why.
BY_CHANCE = ("segment", "reserved", "inactive_split", "num_device")
HERE = pathlib.Path(__file__).resolve().parent


def arm_of(name, settings):
    program = HERE / "compile_program.py"
    return cuda_double.Cases(cuda_double.run(program, name, extra=settings, timeout=1800))


def compiler_settings(folder):
    """One thread, one cache, and a libcuda.so.1 to link Triton's launcher with."""
    (folder / "libcuda.so.1").symlink_to(cuda_double.BUILD / "lib" / "libcuda_double_driver.so")
    return {
        "TRITON_LIBCUDA_PATH": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def test_compiled_training(tmp_path, subtests):
    settings = compiler_settings(tmp_path)
    arm_of("compile", settings)
    native, door_a, door_b = (arm_of(name, settings) for name in ("native", "door_a", "door_b"))
    assert len(list(tmp_path.rglob("*.cubin"))) > 50, "by Triton and ptxas"

    for name in ("gpt", "unet", "gpt_graphs", "unet_graphs"):
        with subtests.test(model=name):
            plain, decorated = native(name), door_a(name)
            assert len(plain["requests"]) > 100
            assert decorated["requests"] == plain["requests"]
            assert decorated["stats"] == plain["stats"]
            assert decorated["steps"] == plain["steps"]
            assert decorated["disagreement"] == {}
            assert len(plain["triton"]) > 5

    for name in ("gpt", "unet"):
        with subtests.test("no graphs", model=name):
            *_, last = native(name)["steps"]
            assert last["captures"] == last["replays"] == 0
            assert last["kernels"] > 10, "made by Triton"

        with subtests.test("CUDA graphs", model=name):
            steps = door_a(name + "_graphs")["steps"]
            assert sum(step["captures"] for step in steps) >= 3, "torch's first, forward, backward"
            assert steps[-1] == {"captures": 0, "replays": 2, "kernels": 0, "modules": 0}

        with subtests.test("door B", model=name):
            mine, theirs = door_b(name), native(name)
            assert mine["steps"][-1] == theirs["steps"][-1]
            assert mine["triton"] == theirs["triton"]
            for key, figure in theirs["stats"][-1].items():
                if not key.startswith(BY_CHANCE):
                    assert mine["stats"][-1][key] == figure, key

    with subtests.test("door B refuses CUDA graphs in one line"):
        said = door_b("refused")
        assert "does not yet support checkPoolLiveAllocations" in said["torchs"]
        assert "\n" not in said["ours"]
        assert 'mode="reduce-overhead"' in said["ours"]
        assert "Fix: use Lowtide's door A" in said["ours"]

    for arm in (native, door_a, door_b):
        with subtests.test("nothing misused or missing", arm=arm.finished.args[2]):
            arm.assert_clean()
