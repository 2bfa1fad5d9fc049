"""Graph classification on several processes: each gets a share of every batch, and DDP averages the
gradients.

The script starts its processes. On GPUs, use one process for each: `--backend nccl --processes <number of
GPUs>`.
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from graph_classification import Net, test
from motifs import FEATURES, motif_graphs
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
from torch_geometric.loader import DataLoader


def run(rank: int, args: argparse.Namespace) -> None:
    dist.init_process_group(args.backend, rank=rank, world_size=args.processes)
    device = torch.device("cuda", rank) if args.backend == "nccl" else torch.device("cpu")

    torch.manual_seed(0)  # the same graphs, and the same initial weights, in every process
    graphs = motif_graphs()
    share = DistributedSampler(graphs[:240], args.processes, rank)
    loader = DataLoader(graphs[:240], batch_size=32 // args.processes, sampler=share)
    model = DistributedDataParallel(Net(FEATURES, args.hidden, 2).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        share.set_epoch(epoch)
        for data in loader:
            optimizer.zero_grad()
            data = data.to(device)
            loss = cross_entropy(model(data), data.y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if rank == 0 and (epoch + 1) % 5 == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}")
    dist.barrier()
    if rank == 0:
        accuracy = test(model.module.cpu(), DataLoader(graphs[240:], batch_size=60))
        print(f"test accuracy: {accuracy:.3f} with {args.processes} processes")
    dist.destroy_process_group()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--backend", choices=["gloo", "nccl"], default="gloo")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.002)
    args = parser.parse_args(argv)

    with socket.socket() as free:
        free.bind(("localhost", 0))
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(free.getsockname()[1]))
    mp.spawn(run, args=(args,), nprocs=args.processes)


if __name__ == "__main__":
    main()
