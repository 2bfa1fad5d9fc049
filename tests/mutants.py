"""Planted bugs on the Python side: proof that the tests of gpn_ops and models catch what they are there for.

For each bug (tests/planting.py) the test that must notice it is run on a copy of the sources, and has to
fail. The file of a test follows from the file of the bug, unless the table names it.

    python tests/mutants.py                             # all
    python tests/mutants.py --quick                     # the subset of .ci/run
    python tests/mutants.py dropout-alike-in-all-epochs # some, by name
"""

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from planting import ROOT, first_problem, main, plant, run

SCRATCH = ROOT / "build" / "mutants-python"
# Beside the copies of these, what is only read is linked to.
COPIED = ("benchmarks", "gpn_ops", "models", "tests")
LINKED = ("csrc", "docs", "pyproject.toml", "README.md", "setup.py")

# Which test file is about which source file.
TEST_FILES = {
    "benchmarks/common.py": "tests/test_benchmarks.py",
    "benchmarks/gpu_check.py": "tests/test_accelerator.py",
    "benchmarks/methods.py": "tests/test_benchmarks.py",
    "benchmarks/pages/training.py": "tests/test_training_benchmark.py",
    "benchmarks/training.py": "tests/test_training_benchmark.py",
    "gpn_ops/keys.py": "tests/test_chunks.py",
    "gpn_ops/checks.py": "tests/test_chunks.py",
    "gpn_ops/chunks.py": "tests/test_chunks.py",
    "gpn_ops/distributed.py": "tests/test_distributed.py",
    "gpn_ops/nn/children.py": "tests/test_nn_scorer.py",
    "gpn_ops/nn/conv.py": "tests/test_nn_conv.py",
    "gpn_ops/nn/connect.py": "tests/test_nn_pooling.py",
    "gpn_ops/nn/dropout.py": "tests/models/test_blocks.py",
    "gpn_ops/nn/hierarchy.py": "tests/test_nn_hierarchy.py",
    "gpn_ops/nn/pad.py": "tests/test_nn_static.py",
    "gpn_ops/nn/pooling.py": "tests/test_nn_pooling.py",
    "gpn_ops/nn/select.py": "tests/test_nn_pooling.py",
    "gpn_ops/nn/static.py": "tests/test_static_form.py",
    "gpn_ops/ops/residual.py": "tests/test_nn_multiset.py",
    "gpn_ops/ops/coarsen.py": "tests/test_coarsen.py",
    "gpn_ops/ops/derivatives.py": "tests/test_reduce.py",
    "gpn_ops/ops/dropout.py": "tests/test_dropout.py",
    "gpn_ops/ops/edge_logits.py": "tests/test_nn_scorer.py",
    "gpn_ops/ops/lift.py": "tests/test_reduce.py",
    "gpn_ops/ops/mask.py": "tests/test_mask.py",
    "gpn_ops/ops/reduce.py": "tests/test_reduce.py",
    "gpn_ops/ops/vmap.py": "tests/test_nn_static.py",
    "models/autoencoder.py": "tests/models/test_reconstruct.py",
    "models/baselines.py": "tests/models/test_baselines.py",
    "models/blocks.py": "tests/models/test_blocks.py",
    "models/common.py": "tests/models/test_files.py",
    "models/config.py": "tests/models/test_config.py",
    "models/data.py": "tests/models/test_data.py",
    "models/expressive.py": "tests/models/test_expressive.py",
    "models/files.py": "tests/models/test_files.py",
    "models/jsonl.py": "tests/models/test_jsonl.py",
    "models/molecules.py": "tests/models/test_baselines.py",
    "models/pictures.py": "tests/models/test_draw.py",
    "models/report.py": "tests/models/test_report.py",
    "models/substructures.py": "tests/models/test_substructures.py",
    "models/train.py": "tests/models/test_training.py",
    "models/training.py": "tests/models/test_training.py",
}


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    test: str
    quick: bool = False
    more: tuple[tuple[str, str], ...] = field(default=())  # further changes of the same file

    @property
    def address(self) -> str:
        """Of the test, for pytest."""
        return self.test if "::" in self.test else f"{TEST_FILES[self.file]}::{self.test}"


MUTANTS = [
    # ------------------------------------------------------------------------------------------ static form
    Mutant(
        "graphs-that-are-done-go-on",
        "gpn_ops/nn/hierarchy.py",
        "edge_index = torch.where(on | is_padding, self.edge_index, self.x.size(0) - 1)",
        "edge_index = self.edge_index",
        "tests/test_nn_static.py::test_a_graph_that_has_stopped_stays_as_it_is",
        quick=True,
    ),
    Mutant(
        "frozen-graphs-are-pooled-again",
        "gpn_ops/nn/hierarchy.py",
        "x=torch.where(changes, pooled.x, kept.to(pooled.x.dtype))",
        "x=pooled.x",
        "tests/test_nn_static.py::test_static_is_dynamic",
    ),
    Mutant(
        "features-of-padding-are-handed-on",
        "gpn_ops/nn/hierarchy.py",
        "            kept = kept.masked_fill((pooled.batch == batch_size).unsqueeze(-1), 0)\n",
        "",
        "tests/test_nn_static.py::test_padding_of_upper_levels_is_zero",
    ),
    Mutant(
        "padding-counts-as-a-graph",
        "gpn_ops/nn/hierarchy.py",
        "x = self.readout(graphs.x.to(dtype), graphs.batch, num_graphs)[:batch_size]",
        "x = self.readout(graphs.x.to(dtype), graphs.batch.clamp(max=batch_size - 1), batch_size)",
        "tests/test_nn_static.py::test_padding_gets_no_gradient_and_gives_none",
    ),
    Mutant(
        "flag-forgets-all-levels-but-the-last",
        "gpn_ops/nn/hierarchy.py",
        "overflow = overflow | ~(fits & fit(numbers[-2:], (above.nodes, above.edges)))",
        "overflow = ~(fits & fit(numbers[-2:], (above.nodes, above.edges)))",
        "tests/test_nn_static.py::test_too_small_a_capacity_is_never_a_plausible_result",
        quick=True,
    ),
    Mutant(
        "flag-without-nan",
        "gpn_ops/nn/hierarchy.py",
        "return HierarchyOutput(torch.where(overflow, torch.nan, x), tree)",
        "return HierarchyOutput(x, tree)",
        "tests/test_nn_static.py::test_too_small_a_capacity_is_never_a_plausible_result",
    ),
    Mutant(
        "too-few-levels-go-unnoticed",
        "gpn_ops/nn/hierarchy.py",
        "            overflow = overflow | (goes_on > 0).any()\n",
        "            pass\n",
        "tests/test_nn_static.py::test_too_small_a_capacity_is_never_a_plausible_result",
    ),
    Mutant(
        "all-loops-on-one-node",
        "gpn_ops/nn/pad.py",
        '.div(2, rounding_mode="floor") % more_nodes',
        " * 0",
        "test_padding_is_a_graph_of_its_own",
    ),
    Mutant(
        "buckets-look-at-nodes-alone",
        "gpn_ops/nn/pad.py",
        "steps = max(-(-STEPS * (num_nodes + 1) // nodes), -(-STEPS * num_edges // edges))",
        "steps = -(-STEPS * (num_nodes + 1) // nodes)",
        "test_buckets_are_steps_of_one_eighth",
    ),
    Mutant(
        "edges-without-reverses-are-halves-of-pairs",
        "gpn_ops/nn/pad.py",
        "    return 2 * ops.undirected(edge_index, level.x.size(0)).pairs.size(1) > edge_index.size(1)\n",
        "    return False\n",
        "tests/test_static_form.py::test_edges_without_reverses_are_pairs_of_their_own",
    ),
    Mutant(
        "another-level-for-every-misfit",
        "gpn_ops/nn/static.py",
        "                if len(tree.levels) == len(before) - 1:\n",
        "                if True:\n",
        "test_what_was_dropped_at_random_needs_more_room_not_more_levels",
    ),
    Mutant(
        "roots-of-the-dtype-of-chance",
        "gpn_ops/nn/hierarchy.py",
        "roots = torch.cat([part.x for part in left]).to(x.dtype)",
        "roots = torch.cat([part.x for part in left])",
        "tests/test_nn_static.py::test_under_autocast",
    ),
    Mutant(
        "what-is-compiled-for-all-sizes-is-kept",
        "gpn_ops/nn/children.py",
        "return torch.compiler.is_exporting() or not known",
        "return torch.compiler.is_exporting()",
        "tests/test_nn_multiset.py::test_what_is_compiled_for_one_size_keeps_more",
    ),
    Mutant(
        "flag-not-read",
        "gpn_ops/nn/static.py",
        "            if not bool(result.tree.overflow):\n",
        "            if True:\n",
        "test_what_does_not_fit_goes_through_the_dynamic_form",
        quick=True,
    ),
    Mutant(
        "rows-of-padding-are-returned",
        "gpn_ops/nn/static.py",
        "rows = x.size(0) if self.per_node else batch_size",
        "rows = None",
        "test_in_place_of_the_model",
    ),
    Mutant(
        "warming-up-trains",
        "gpn_ops/nn/static.py",
        "(overflow | skips).to(torch.float32)",
        "overflow.to(torch.float32)",
        "test_a_captured_training_is_the_training",
    ),
    Mutant(
        "a-step-on-nan",
        "gpn_ops/nn/static.py",
        "(overflow | skips).to(torch.float32)",
        "(torch.zeros_like(overflow) | skips).to(torch.float32)",
        "test_a_captured_training_is_the_training",
    ),
    Mutant(
        "labels-of-padding-count",
        "gpn_ops/nn/static.py",
        "IGNORED = -100",
        "IGNORED = 0",
        "test_a_captured_training_is_the_training",
    ),
    Mutant(
        "compiled-gradient-of-another-matrix",
        "gpn_ops/nn/conv.py",
        "return _bags(grad, *ctx.saved_tensors), None, None, None",
        "return _bags(grad, torch.ones_like(ctx.saved_tensors[0]), *ctx.saved_tensors[1:]), None, None, None",
        "test_compiled",
    ),
    Mutant(
        "every-element-is-the-first",
        "gpn_ops/ops/vmap.py",
        "leaf.select(dim, k)",
        "leaf.select(dim, 0)",
        "test_vmap_over_parameters",
    ),
    # -------------------------------------------------------------------------------------------- operators
    Mutant(
        "plain-lift-takes-any-id",
        "gpn_ops/ops/lift.py",
        '    check_cluster_values(cluster, -1, "num_clusters", x.size(0))\n',
        "    cluster = cluster.clamp(max=x.size(0) - 1)\n",
        "test_bad_values",
        quick=True,
    ),
    Mutant(
        "gradient-of-a-mean-not-divided",
        "gpn_ops/ops/reduce.py",
        "        grad = grad / sizes.view(-1, *[1] * (grad.dim() - 1)).to(grad.dtype)\n",
        "",
        "test_derivatives",
    ),
    Mutant(
        "memory-beside-taken-for-shared",
        "gpn_ops/checks.py",
        "    if begin < other_end and other_begin < end:\n",
        "    if begin < other_end and other_begin <= end:\n",
        "tests/test_errors.py::test_memory_that_is_read_is_not_written",
    ),
    Mutant(
        "plain-maximum-takes-the-last-tie",
        "gpn_ops/ops/reduce.py",
        """node, num_nodes)
    first = node.new_full(shape, num_nodes).scatter_reduce(0, index, candidate, "amin")""",
        """node, -1)
    first = node.new_full(shape, -1).scatter_reduce(0, index, candidate, "amax") % (num_nodes + 1)""",
        "test_plain_pytorch",
    ),
    Mutant(
        "mask-counts-outer-edges",
        "gpn_ops/ops/mask.py",
        "count.index_add(0, row, inner.long())",
        "count.index_add(0, row, torch.ones_like(row))",
        "test_plain_pytorch",
    ),
    Mutant(
        "plain-coarsen-drops-self-loops",
        "gpn_ops/ops/coarsen.py",
        "kept = ((row != col) | self_loops) & listed",
        "kept = (row != col) & listed",
        "test_plain_pytorch",
    ),
    Mutant(
        "one-nan-accepted",
        "gpn_ops/checks.py",
        "        if bool(is_nan.any()):\n",
        "        if bool(is_nan.all()):\n",
        "test_bad_chunk_is_named",
    ),
    Mutant(
        "rows-rounded-before-the-sum",
        "gpn_ops/ops/residual.py",
        "accumulate_(out, state.norm.out, cluster[tile])",
        "accumulate_(out, state.norm.out.to(x.dtype).to(out.dtype), cluster[tile])",
        "test_rows_in_half_precision_are_rounded_after_the_sum",
        quick=True,
    ),
    Mutant(
        "kept-and-computed-anew",
        "gpn_ops/ops/residual.py",
        "            if kept.numel():\n",
        "            if False:\n",
        "test_what_was_kept_is_not_computed_anew",
    ),
    Mutant(
        "much-is-kept",
        "gpn_ops/nn/children.py",
        "kept_values * 4 > KEPT_BYTES",
        "kept_values * 0 > KEPT_BYTES",
        "tests/test_nn_multiset.py::test_what_is_little_is_kept",
    ),
    Mutant(
        "rows-of-one-tile-rounded-before-the-sum",
        "gpn_ops/ops/residual.py",
        "        out = state.norm.out\n        return",
        "        out = state.norm.out.to(x.dtype).to(block.wide)\n        return",
        "test_rows_in_half_precision_are_rounded_after_the_sum",
    ),
    Mutant(
        "trees-one-level-too-high",
        "gpn_ops/nn/hierarchy.py",
        "height = torch.stack(shrunk).sum(0) if shrunk",
        "height = torch.ones_like(torch.stack(shrunk)).sum(0) if shrunk",
        "test_graphs_that_stop_beside_graphs_that_go_on",
    ),
    Mutant(
        "gradients-of-masks-unchecked",
        "gpn_ops/ops/mask.py",
        '    check_floating("grad", grad)\n',
        "",
        "tests/test_errors.py::test_wrong_metadata[mask_backward: grad: int16]",
    ),
    Mutant(
        "pairs-named-by-their-place-in-a-tile",
        "gpn_ops/ops/edge_logits.py",
        "    if waits.is_host(h.device):\n        check_pair_values",
        "    if False:\n        check_pair_values",
        "tests/test_errors.py::test_wrong_values[edge_logits: pairs: -7]",
    ),
    Mutant(
        "directions-scored-apart-of-any-dtype",
        "gpn_ops/nn/scorer.py",
        "        edge_index = checked_edges(edge_index)\n",
        "",
        "tests/test_nn_errors.py::test_the_argument_is_named[EdgeScorer, directed: edge_index: int16]",
    ),
    Mutant(
        "penalty-on-gradients-of-a-convolution-lost",
        "gpn_ops/nn/conv.py",
        "                back = (ctx.adjacency @ grad).to(ctx.product)\n",
        "                back = (ctx.adjacency @ grad.detach()).to(ctx.product)\n",
        "test_derivatives_of_both_orders",
    ),
    # ------------------------------------------------------------------------------------ layers as modules
    Mutant(
        "hooks-of-children-ignored",
        "gpn_ops/nn/children.py",
        "        not module._forward_hooks\n        and not",
        "        not",
        "test_hooks_of_children_fire",
        quick=True,
    ),
    Mutant(
        "subclassed-children-ignored",
        "gpn_ops/nn/children.py",
        "    elif type(module) is not Linear:\n",
        "    elif not isinstance(module, Linear):\n",
        "test_children_of_a_users_own_take_effect",
    ),
    Mutant(
        "flops-of-tiles-not-counted",
        "gpn_ops/ops/edge_logits.py",
        "    return product_flops(pairs[1], parameters)\n",
        "    return 0\n",
        "test_flops_are_those_of_the_matrix_products",
    ),
    Mutant(
        "forward-mode-gives-zeros",
        "gpn_ops/ops/derivatives.py",
        "forward_ad._current_level >= 0",
        "forward_ad._current_level >= 9",
        "test_derivatives",
    ),
    Mutant(
        "nested-transforms-cut-off",
        "gpn_ops/ops/derivatives.py",
        "with torch.enable_grad(), _set_fwd",
        "with _set_fwd",
        "tests/test_nn_pooling.py::test_transforms_of_torch_func",
    ),
    Mutant(
        "gradients-of-a-list-cut-off-in-transforms",
        "gpn_ops/ops/derivatives.py",
        "        return tuple(output) if isinstance(output, list) else output\n",
        "        return output\n",
        "tests/test_nn_pooling.py::test_transforms_of_torch_func",
    ),
    Mutant(
        "wide-layers-on-tiles",
        "gpn_ops/nn/children.py",
        "module.normalized_shape != (channels,)",
        "len(module.normalized_shape) != 1",
        "tests/test_nn_pooling.py::test_layers_of_another_width_take_effect",
    ),
    Mutant(
        "second-derivative-of-a-mask-lost",
        "gpn_ops/ops/mask.py",
        "    if not torch.is_grad_enabled():\n",
        "    if True:\n",
        "test_derivatives",
    ),
    Mutant(
        "edges-between-graphs-coarsened",
        "gpn_ops/nn/connect.py",
        "edge_attr, self.reduce, self.self_loops, batch)",
        "edge_attr, self.reduce, self.self_loops)",
        "test_an_edge_between_two_graphs_is_refused",
    ),
    Mutant(
        "dropped-edges-between-graphs-unseen",
        "gpn_ops/nn/select.py",
        "            if batch is not None:",
        "            if False:",
        "test_an_edge_between_two_graphs_is_refused",
    ),
    Mutant(
        "self-loops-out-of-range-not-named",
        "gpn_ops/nn/select.py",
        ".clamp(max=num_nodes)",
        "",
        "test_a_self_loop_out_of_range_is_refused_where_self_loops_are_added",
    ),
    Mutant(
        "weights-of-another-type-than-features",
        "gpn_ops/nn/pooling.py",
        "            weight = weight.to(x.dtype)\n",
        "            pass\n",
        "test_weights_of_a_layer_are_of_the_type_of_its_features",
    ),
    Mutant(
        "edge-attributes-to-models-that-ignore-them",
        "gpn_ops/nn/hierarchy.py",
        "is False",
        "is None",
        "test_models_of_pyg_that_ignore_edge_attributes_are_refused",
    ),
    # ------------------------------------------------------------------------------- chunks and processes
    Mutant(
        "zeros-differ-in-chunks",
        "gpn_ops/keys.py",
        "torch.where(bits < 0, -magnitude, magnitude)",
        "torch.where(bits < 0, ~magnitude, magnitude)",
        "test_named_graphs",
    ),
    Mutant(
        "later-chunk-wins-a-tie",
        "gpn_ops/chunks.py",
        "better = code > self.code[node]",
        "better = code >= self.code[node]",
        "test_named_graphs",
    ),
    Mutant(
        "tie-to-the-highest-rank",
        "gpn_ops/distributed.py",
        "above = (ranks.size - 1 - ranks.rank) << column_bits",
        "above = ranks.rank << column_bits",
        "test_equals_single_process",
    ),
    Mutant(
        "claims-one-bit-too-wide",
        "gpn_ops/distributed.py",
        "num_ranks << column_bits <= 2**31",
        "num_ranks << column_bits <= 2**32",
        "test_claims_fit_their_dtype",
    ),
    Mutant(
        "cluster-compared-by-its-sum",
        "gpn_ops/distributed.py",
        "        word = part * ids.numel() + place\n",
        "        word = part\n",
        "test_hash_of_a_cluster",
    ),
    # ---------------------------------------------------------------------------------------------- splits
    Mutant(
        "validates-on-the-test-fold",
        "models/data.py",
        "return Split(train.nonzero().view(-1), folds[fold - 1], folds[fold])",
        "return Split(train.nonzero().view(-1), folds[fold], folds[fold])",
        "test_fold_tests_and_the_one_before_validates",
    ),
    Mutant(
        "trains-on-the-validation-fold",
        "models/data.py",
        "train[folds[fold]] = train[folds[fold - 1]] = False",
        "train[folds[fold]] = False",
        "test_fold_tests_and_the_one_before_validates",
    ),
    Mutant(
        "same-folds-for-every-seed",
        "models/data.py",
        "random_state=seed",
        "random_state=0",
        "test_fold_tests_and_the_one_before_validates",
    ),
    Mutant(
        "rare-scaffolds-train",
        "models/data.py",
        "key=lambda found: (len(found), found[0]), reverse=True)",
        "key=lambda found: (len(found), found[0]))",
        "test_scaffold_split_by_hand",
    ),
    Mutant(
        "a-scaffold-that-does-not-fit-is-cut",
        "models/data.py",
        "        elif 10 * (len(train) + len(val) + len(members)) <= 9 * len(smiles):\n",
        "        elif 10 * (len(train) + len(val)) <= 9 * len(smiles):\n",
        "test_scaffold_split_by_hand",
    ),
    Mutant(
        "edges-of-a-batch-not-shifted",
        "models/data.py",
        "self.edge_index.index_select(1, edges) + offset",
        "self.edge_index.index_select(1, edges)",
        "test_taking_graphs_is_pygs_batch",
    ),
    Mutant(
        "prepared-data-not-checked",
        "models/data.py",
        "        _check_prepared(processed)\n",
        "",
        "test_prepared_files_that_are_damaged_are_made_anew",
    ),
    Mutant(
        "any-function-is-a-data-set",
        "models/data.py",
        "if not isinstance(found, type) or not issubclass(found, (Dataset, *_registered)):",
        "if not callable(found):",
        "test_only_classes_of_data_sets_are_called",
    ),
    # ------------------------------------------------------------------------------------------- training
    Mutant(
        "dropout-alike-in-all-epochs",
        "models/training.py",
        "seed_everything(self.seed, self.fold, self.epoch, self.rank)",
        "seed_everything(self.seed, self.fold, self.rank)",
        "test_every_epoch_fold_and_seed_draws_from_a_seed_of_its_own",
        quick=True,
    ),
    Mutant(
        "order-alike-in-all-epochs",
        "models/training.py",
        "seed_everything(self.seed, self.fold, self.epoch)\n",
        "seed_everything(self.seed, self.fold)\n",
        "test_every_graph_once_an_epoch_in_a_new_order",
    ),
    Mutant(
        "weights-alike-for-all-folds",
        "models/training.py",
        "        seed_everything(seed, fold)\n",
        "        seed_everything(seed)\n",
        "test_folds_and_seeds_begin_with_weights_of_their_own",
    ),
    Mutant(
        "patience-one-epoch-longer",
        "models/training.py",
        'self.epoch - self.best["epoch"] >= self.config.patience',
        'self.epoch - self.best["epoch"] > self.config.patience',
        "test_graph_tasks_stop_by_epochs",
    ),
    Mutant(
        "an-equal-loss-is-an-improvement",
        "models/training.py",
        "sign * record[what] > sign * self.best[what]",
        "sign * record[what] >= sign * self.best[what]",
        "test_node_tasks_stop_after_two_measurements_without_improvement",
    ),
    Mutant(
        "the-last-epoch-is-reported",
        "models/training.py",
        "if not self.best or math.isnan(self.best[what]) or sign * record[what] > sign * self.best[what]:",
        "if True:",
        "test_the_epoch_that_is_reported",
    ),
    Mutant(
        "chosen-on-the-test-set",
        "models/training.py",
        '"loss": ("val_loss", -1)',
        '"loss": ("test_loss", -1)',
        "test_graph_tasks_stop_by_epochs",
    ),
    Mutant(
        "weights-of-the-last-epoch",
        "models/training.py",
        "{key: value.clone() for key, value in self.measured.state_dict().items()}",
        "dict(self.measured.state_dict())",
        "test_kept_weights_give_the_recorded_result",
    ),
    Mutant(
        "loss-of-a-batch-not-divided-by-its-labels",
        "models/training.py",
        "objective = loss * (self.world / max(labels, 1)) + prediction.extra_loss",
        "objective = loss * (self.world / self.config.batch_size) + prediction.extra_loss",
        "test_steps_are_those_of_adam_with_decay_in_the_gradient",
    ),
    Mutant(
        "warm-up-a-step-late",
        "models/training.py",
        "return config.lr * step / warmup",
        "return config.lr * (step + 1) / warmup",
        "test_rate_warms_up_and_decays_by_a_cosine",
    ),
    Mutant(
        "checkpoint-of-other-settings-taken",
        "models/training.py",
        'if state["digest"] != digest(self.config):',
        "if False:",
        "test_a_checkpoint_of_no_use_is_set_aside",
    ),
    Mutant(
        "optimiser-forgotten",
        "models/training.py",
        '        self.optimizer.load_state_dict(state["optimizer"])\n',
        "",
        "test_a_run_that_was_stopped_ends_as_one_that_was_not",
    ),
    Mutant(
        "temporaries-stay",
        "models/training.py",
        "temporary.unlink(missing_ok=True)",
        "pass",
        "test_what_a_killed_process_left_of_a_run_is_removed",
    ),
    Mutant(
        "finished-with-any-settings",
        "models/train.py",
        ' for run in runs if run["digest"] == digest(config)}',
        " for run in runs}",
        "test_runs_of_other_settings_are_not_finished",
        quick=True,
    ),
    Mutant(
        "finished-without-weights",
        "models/train.py",
        "    if place.keep_model:\n",
        "    if False:\n",
        "test_finished_runs_without_weights_are_made_again_to_keep_them",
    ),
    Mutant(
        "recorded-before-the-weights",
        "models/train.py",
        "    record = run.train()\n",
        "    early = {'seed': seed, 'fold': fold, 'digest': digest(config)}\n"
        "    jsonl.append(place.folder / 'runs.jsonl', early)\n"
        "    record = run.train()\n",
        "test_weights_that_cannot_be_written_leave_the_run_to_be_made",
    ),
    Mutant(
        "jobs-that-outlive-their-command",
        "models/train.py",
        "    command.join()\n    os._exit(1)\n",
        "    command.join()\n",
        "test_jobs_of_a_killed_command_end",
    ),
    # ------------------------------------------------------------------------------- settings, files, lines
    Mutant(
        "trials-that-are-off-rename-runs",
        "models/config.py",
        "if value != getattr(Trial, key)}",
        "if value is not None}",
        "test_trials_are_no_settings_of_the_main_configuration",
    ),
    Mutant(
        "a-file-may-name-code",
        "models/config.py",
        'in str(settings["dataset"]) and not trust:',
        'in str(settings["dataset"]) and trust is None:',
        "test_a_file_alone_names_no_code",
    ),
    Mutant(
        "names-lead-elsewhere",
        "models/config.py",
        r"[A-Za-z0-9][\w.-]*",
        r"[\w./-]+",
        "test_names_that_would_leave_a_folder",
    ),
    Mutant(
        "checksums-not-compared",
        "models/files.py",
        "    check_archive(io.BytesIO(data))\n",
        "",
        "test_no_flipped_bit_goes_unnoticed",
    ),
    Mutant(
        "written-in-place",
        "models/files.py",
        "with beside.open",
        "with path.open",
        "test_a_file_too_large_leaves_what_was_there",
    ),
    Mutant(
        "not-read-back",
        "models/files.py",
        "if beside.read_bytes() != data:",
        "if False:",
        "test_what_reads_back_as_something_else_is_not_taken",
    ),
    Mutant(
        "half-a-line-stays",
        "models/files.py",
        "        os.ftruncate(descriptor, size)\n",
        "",
        "test_appending_is_all_or_nothing",
    ),
    Mutant(
        "appended-to-half-a-line",
        "models/jsonl.py",
        'b"\\n" if cut else b""',
        'b""',
        "test_a_line_that_was_cut_short_is_skipped_and_spoils_no_other",
    ),
    # --------------------------------------------------------------------------------- report and pictures
    Mutant(
        "deviation-of-a-population",
        "models/report.py",
        "deviation = statistics.stdev(values)",
        "deviation = statistics.pstdev(values)",
        "test_deviation_over_seeds_of_the_means_over_folds",
        quick=True,
    ),
    Mutant(
        "deviation-over-all-runs",
        "models/report.py",
        'values = [statistics.fmean(run["test"] for run in runs) for runs in finished.values()]',
        'values = [run["test"] for runs in finished.values() for run in runs]',
        "test_deviation_over_seeds_of_the_means_over_folds",
    ),
    Mutant(
        "unfinished-seeds-count",
        "models/report.py",
        "(finished or seeds).values()",
        "seeds.values()",
        "test_unfinished_seed_beside_a_finished_one_is_left_out",
    ),
    Mutant(
        "digests-mixed",
        "models/report.py",
        'settings(record["changed"]), record["digest"])',
        'settings(record["changed"]), "")',
        "test_digests_do_not_mix_even_if_no_setting_was_changed",
    ),
    Mutant(
        "paper-reached-from-above-only",
        "models/report.py",
        "return paper[0] - paper[1]",
        "return paper[0]",
        "test_graph_sets_may_be_one_deviation_of_the_paper_below",
    ),
    Mutant(
        "validation-for-test-in-the-table",
        "models/report.py",
        'over, values = "folds", [record["test"] for record in used]',
        'over, values = "folds", [record["val"] for record in used]',
        "test_one_seed_has_a_deviation_over_folds_and_says_so",
    ),
    Mutant(
        "molecules-with-ten-folds",
        "models/report.py",
        " or group.dataset in MOLECULES",
        "",
        "test_one_run_is_complete_where_the_data_has_one_split",
    ),
    Mutant(
        "deviation-of-means-alone",
        "models/pictures.py",
        'record.get(f"{key}_std", 0.0) ** 2 + ',
        "",
        "test_heights_by_hand",
    ),
    # -------------------------------------------------------------------------------------- lean models
    Mutant(
        "convolution-gathers-a-row-per-edge",
        "gpn_ops/nn/conv.py",
        'torch.sparse.mm(self.edges, x, "sum") if waits.is_host(x.device) else self.edges @ x\n',
        'torch.segment_reduce(x[self.edges.col_indices()] * self.edges.values()[:, None], "sum", '
        "lengths=self.edges.crow_indices().diff(), axis=0, initial=0)\n",
        "test_no_row_per_edge",
        quick=True,
    ),
    Mutant(
        "self-loop-loses-its-weight",
        "gpn_ops/nn/conv.py",
        "loops = torch.where(looped, loops, 1.0)",
        "loops = torch.ones_like(loops)",
        "test_is_pygs_gcn_values_and_gradients",
    ),
    Mutant(
        "no-gradient-of-a-self-loops-weight",
        "gpn_ops/nn/conv.py",
        "return grad_x, grad_weight, grad_diagonal, None",
        "return grad_x, grad_weight, None, None",
        "test_is_pygs_gcn_values_and_gradients",
    ),
    Mutant(
        "weights-of-one-direction-taken",
        "gpn_ops/nn/conv.py",
        "if bool(((out - into).abs() > tolerance * largest).any()):",
        "if False:",
        "test_bad_input",
    ),
    Mutant(
        "dropout-keeps-its-input",
        "gpn_ops/ops/dropout.py",
        "ctx.save_for_backward(*((output,) if ctx.relu else (seed,)))",
        "ctx.save_for_backward(*((output,) if ctx.relu else (seed,)), inputs[0])",
        "test_nothing_but_the_seed_or_the_output_is_kept",
    ),
    Mutant(
        "dropout-in-evaluation",
        "gpn_ops/nn/dropout.py",
        "draw_seed(x, self.p, self.training)",
        "draw_seed(x, self.p, True)",
        "test_dropout_of_nothing_and_of_everything",
        quick=True,
    ),
    Mutant(
        "mlp-keeps-what-it-could-recompute",
        "models/blocks.py",
        "if not (torch.is_grad_enabled() and keeps_nothing(self.recompute, x.size(0) * self.kept_channels)):",
        "if True:",
        "test_a_block_or_mlp_that_recomputes_is_the_same_and_keeps_its_input_only",
    ),
    Mutant(
        "mlp-multiplies-its-last-product-twice",
        "models/blocks.py",
        "len(layers) if self.recompute is True else self.last_linear + 1",
        "len(layers)",
        "test_of_a_large_mlp_the_last_product_is_kept",
    ),
    Mutant(
        "block-drops-after-its-last-layer",
        "models/blocks.py",
        "if self.act_last or k < len(self.convs) - 1:",
        "if True:",
        "test_dropout_follows_the_last_layer_with_act_last_only",
    ),
    # ---------------------------------------------------------------------------------------- benchmarks
    Mutant(
        "plot-drops-curves-beyond-its-colours",
        "benchmarks/common.py",
        "for position, name in enumerate(names):",
        "for position, name in enumerate(names := names[: len(COLOURS)]):",
        "test_every_curve_is_drawn_and_labelled",
        quick=True,
    ),
    Mutant(
        "curves-beyond-the-colours-look-alike",
        "benchmarks/common.py",
        "turn, colour = divmod(position, len(COLOURS))",
        "turn, colour = 0, position % len(COLOURS)",
        "test_every_curve_is_drawn_and_labelled",
    ),
    Mutant(
        "labels-on-one-another",
        "benchmarks/common.py",
        "gap=12 / points_high)",
        "gap=0)",
        "test_every_curve_is_drawn_and_labelled",
    ),
    Mutant(
        "x-marks-on-one-another",
        "benchmarks/common.py",
        "row = rows[size] = rows.get(size, 0) + 1",
        "row = rows[size] = 1",
        "test_what_ran_out_is_marked",
    ),
    Mutant(
        "tables-hide-who-is-faster",
        "benchmarks/common.py",
        "for ratio, name in ratios if ratio < 1]",
        "for ratio, name in ratios if ratio < 0]",
        "test_tables_name_who_is_faster_and_who_slower",
    ),
    Mutant(
        "gradients-of-a-step-not-counted",
        "benchmarks/training.py",
        "    run.optimizer.zero_grad()  # gradients are made in the step, and count\n",
        "",
        "test_gradients_count_in_a_step",
    ),
    Mutant(
        "summary-drops-times-without-a-peak",
        "benchmarks/pages/training.py",
        "if name in seconds else []",
        "if not isinstance(peak, str) else []",
        "test_report_summary_and_plot",
    ),
    Mutant(
        "model-that-ran-out-is-missing-from-the-plot",
        "benchmarks/pages/training.py",
        "for read in (common.curves, common.exhausted))",
        "for read in (common.curves, lambda results, what: {}))",
        "test_report_summary_and_plot",
    ),
    Mutant(
        "summary-hides-who-is-better",
        "benchmarks/pages/training.py",
        'row.append(", ".join(map(common.cell, ratios)))',
        'row.append(", ".join(common.cell(ratio).strip("*") for ratio in ratios))',
        "test_report_summary_and_plot",
    ),
    Mutant(
        "clock-goes-in-ticks",
        "benchmarks/common.py",
        "now = time.thread_time if",
        "now = time.process_time if",
        "test_a_limit_of_processor_time_does_not_make_the_clock_coarse",
    ),
    Mutant(
        "out-of-time-called-out-of-memory",
        "benchmarks/common.py",
        "        if number == signal.SIGXCPU:\n            return OUT_OF_TIME\n",
        "        if number == signal.SIGXCPU:\n            return OUT_OF_MEMORY\n",
        "test_a_limit_of_processor_time_does_not_count_waiting",
    ),
    Mutant(
        "results-of-two-commits-in-one-file",
        "benchmarks/common.py",
        'same = found["machine"]["commit"] == commit() and found["command"] == command()',
        'same = found["command"] == command()',
        "test_what_was_stopped_is_resumed",
    ),
    Mutant(
        "two-rounds-of-refinement-less",
        "models/expressive.py",
        "(own[i], tuple(sorted(own[j] for j in around[i])))",
        "(own[i], len(around[i]))",
        "test_cores_have_the_same_degrees_and_two_rounds_tell",
    ),
    Mutant(
        "apart-for-one-numbering-is-enough",
        "models/expressive.py",
        "float((between.amin(dim=(1, 2)) > APART)",
        "float((between.amax(dim=(1, 2)) > APART)",
        "test_shares_by_hand",
    ),
    Mutant(
        "whole-at-the-top-counts-as-whole-below",
        "models/substructures.py",
        "of_atom[min(number, len(of_atom)) - 1]",
        "of_atom[-1]",
        "test_counts_by_hand",
    ),
    Mutant(
        "every-ring-round-a-cage",
        "models/substructures.py",
        "Chem.GetSSSR(molecule)",
        "molecule.GetRingInfo().AtomRings()",
        "test_a_cage_has_as_many_rings_as_bonds_beyond_a_tree",
    ),
    Mutant(
        "chance-forgets-what-it-joined",
        "models/substructures.py",
        "parts |= dict.fromkeys(one | other, one | other)",
        "parts |= dict.fromkeys(one, one | other)",
        "test_as_many_clusters_at_random",
    ),
    Mutant(
        "held-draw-spoils-the-draws-of-others",
        "models/autoencoder.py",
        "torch.random.fork_rng(enabled=self.draw is not None)",
        "torch.random.fork_rng(enabled=False)",
        "test_a_draw_that_is_held",
    ),
    Mutant(
        "crash-taken-for-out-of-memory",
        "benchmarks/common.py",
        'if number == signal.SIGKILL or device.type == "cpu":',
        "if True:",
        "test_on_cuda_a_crash_is_not_out_of_memory",
    ),
    Mutant(
        "checked-on-the-first-card-alone",
        "benchmarks/gpu_check.py",
        "for k in range(torch.cuda.device_count())",
        "for k in range(1)",
        "test_the_check_builds_for_the_cards_at_hand",
    ),
    Mutant(
        "quick-hub-without-the-hub",
        "benchmarks/common.py",
        "inside[hub] = inside[",
        "inside[",
        "test_around_the_hub",
    ),
    Mutant(
        "fused-rings-joined-in-pairs",
        "models/substructures.py",
        "ring.union(*(other for other in found if other & ring))",
        "ring.union(*[other for other in found if other & ring][:1])",
        "test_rings_that_a_third_one_joins",
    ),
    Mutant(
        "bonds-all-alike",
        "models/molecules.py",
        "super().forward(x, edge_index, self.bonds(edge_attr))",
        "super().forward(x, edge_index, self.bonds(0 * edge_attr))",
        "test_gin_of_molecules_edge_by_edge",
    ),
    Mutant(
        "one-auxiliary-loss-of-two",
        "models/baselines.py",
        "return DensePooled(x, adj, logits, first_loss + second_loss)",
        "return DensePooled(x, adj, logits, first_loss)",
        "test_dense_assignment_is_the_one_pooled_by",
    ),
]


def copy_sources(to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for results in ("benchmarks/results", "models/results"):
        (to / results).symlink_to(ROOT / results)
    for name in LINKED:
        (to / name).symlink_to(ROOT / name)


def pytest(sources: Path, tests: list[str], timeout: float = 900) -> tuple[int, str]:
    """The tests of a copy, on its own sources. On the CPU: what a GPU adds is in the tables of C++."""
    options = ["-q", "-x", "-m", "", "--device", "cpu", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *options, *tests]
    return run(command, timeout, cwd=sources, env=environment)


def prepare(chosen: list[Mutant], jobs: int) -> str | None:
    """Runs every test without a bug."""
    sources = SCRATCH / "unplanted"
    copy_sources(sources)
    addresses = list(dict.fromkeys(mutant.address for mutant in chosen))

    def unplanted(tests: list[str]) -> str | None:
        status, output = pytest(sources, tests, timeout=3600)  # of all of them
        return f"a test fails without a planted bug:\n{output[-2000:]}" if status != 0 else None

    problem = first_problem(unplanted, [share for k in range(jobs) if (share := addresses[k::jobs])], jobs)
    if problem is None:
        shutil.rmtree(sources)
    return problem


def outcome(mutant: Mutant) -> str | None:
    """None if the bug was caught, else what happened instead."""
    sources = SCRATCH / mutant.name
    copy_sources(sources)
    try:
        plant(mutant, sources)
    except LookupError as error:
        return str(error)
    status, output = pytest(sources, [mutant.address])
    if status == 0:
        return f"{mutant.address} passes"
    if status != 1:  # 1: tests were run, and failed.
        return f"{mutant.address} was not run:\n{output[-2000:]}"
    shutil.rmtree(sources)
    return None


if __name__ == "__main__":
    sys.exit(main("Planted bugs that the Python tests have to catch.", MUTANTS, prepare, outcome))
