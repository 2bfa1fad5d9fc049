"""Graph classification with PyTorch Lightning, which runs the training loop."""

import argparse

import torch
from graph_classification import Net
from motifs import FEATURES, motif_graphs
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.data.lightning import LightningDataset

try:
    import lightning
except ImportError as error:
    raise SystemExit(f"This example needs PyTorch Lightning: pip install lightning ({error})") from error


class Classifier(lightning.LightningModule):
    def __init__(self, in_channels: int, hidden: int, num_classes: int, lr: float):
        super().__init__()
        self.save_hyperparameters()
        self.net = Net(in_channels, hidden, num_classes)

    def training_step(self, data: Data, batch_idx: int) -> torch.Tensor:
        loss = cross_entropy(self.net(data), data.y)
        self.log("loss", loss, batch_size=data.num_graphs, prog_bar=True)
        return loss

    def evaluate(self, name: str, data: Data) -> None:
        accuracy = (self.net(data).argmax(dim=1) == data.y).float().mean()
        self.log(name, accuracy, batch_size=data.num_graphs, prog_bar=True)

    def validation_step(self, data: Data, batch_idx: int) -> None:
        self.evaluate("val_accuracy", data)

    def test_step(self, data: Data, batch_idx: int) -> None:
        self.evaluate("test_accuracy", data)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main(argv: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--accelerator", default="cpu")
    args = parser.parse_args(argv)

    lightning.seed_everything(0, verbose=False)
    graphs = motif_graphs()
    data = LightningDataset(graphs[:200], graphs[200:250], graphs[250:], batch_size=32, num_workers=0)
    model = Classifier(FEATURES, args.hidden, 2, args.lr)
    trainer = lightning.Trainer(
        max_epochs=args.epochs,
        accelerator=args.accelerator,
        devices=1,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    (result,) = trainer.test(model, data, verbose=False)
    print(f"test accuracy: {result['test_accuracy']:.3f}")
    return result["test_accuracy"]


if __name__ == "__main__":
    main()
