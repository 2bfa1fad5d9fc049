"""Whether there is a GPU to test on."""

import torch


def why_no_cuda() -> str | None:
    """The reason why tests on CUDA cannot run here, or None."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    if not torch.cuda.is_available():
        return "no GPU is available"
    from gpn_ops import library

    torch.cuda.init()  # which loads the library
    return None if library.cuda_loaded() else f"CUDA library: {library.cuda_status()}"
