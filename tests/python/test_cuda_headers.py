"""Which CUDA headers the build takes: the toolkit's from 13.0 on, else those of torch's wheels."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(Probe LANGUAGES NONE)
include({module})
if(TARGET lowtide_cuda_headers)
  message(STATUS "took ${{LOWTIDE_CUDA_INCLUDE_DIRS}}")
else()
  message(STATUS "took nothing")
endif()
"""


def headers(folder, version, cupti=True):
    """A made-up include folder."""
    (folder / "nvtx3").mkdir(parents=True)
    (folder / "nvtx3" / "nvToolsExt.h").touch()
    (folder / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {version}\n")
    if cupti:
        (folder / "cupti.h").touch()
    return folder


@pytest.fixture
def took(tmp_path):
    """Runs the module; what it took, with the test's own folder cut off."""
    (tmp_path / "CMakeLists.txt").write_text(
        PROJECT.format(module=ROOT / "scripts" / "cmake" / "LowtideCuda.cmake")
    )

    def configure():
        done = subprocess.run(
            [
                "cmake",
                "-S",
                tmp_path,
                "-B",
                tmp_path / "build",
                f"-DLOWTIDE_CUDA_HOME={tmp_path / 'toolkit'}",
                f"-DLOWTIDE_SITE_PACKAGES={tmp_path / 'site'}",
            ],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        line = next(line for line in done.stdout.splitlines() if line.startswith("-- took "))
        return line.removeprefix("-- took ").replace(f"{tmp_path}/", "")

    return configure


WHEELS = "site/nvidia/cu13/include"


def test_a_new_toolkit_comes_before_the_wheels(took, tmp_path):
    headers(tmp_path / "toolkit" / "include", 13000)
    headers(tmp_path / WHEELS, 13020)
    assert took() == "toolkit/include"


def test_an_old_toolkit_is_passed_over(took, tmp_path):
    headers(tmp_path / "toolkit" / "include", 12080)
    headers(tmp_path / WHEELS, 13020)
    assert took() == WHEELS


def test_cupti_in_a_folder_of_its_own_is_found(took, tmp_path):
    headers(tmp_path / "toolkit" / "include", 13000, cupti=False)
    extras = tmp_path / "toolkit" / "extras" / "CUPTI" / "include"
    extras.mkdir(parents=True)
    (extras / "cupti.h").touch()
    assert took() == "toolkit/include;toolkit/include/../extras/CUPTI/include"


def test_a_toolkit_without_cupti_is_passed_over(took, tmp_path):
    headers(tmp_path / "toolkit" / "include", 13000, cupti=False)
    headers(tmp_path / WHEELS, 13020)
    assert took() == WHEELS


def test_no_headers_is_no_error(took):
    assert took() == "nothing"
