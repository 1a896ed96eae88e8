"""Budget, schedule, validation points and the ledger that all arms share."""

import dataclasses

import pytest
import torch
from transformers import TrainerControl, TrainerState

from agent_rl.training.ledger import Ledger
from agent_rl.training.loop import (
    FLOOR,
    BudgetCallback,
    common_arguments,
    loss_in_pieces,
    optimizer_and_schedule,
)


class Counted:
    """Counts how often it was asked."""

    def __init__(self):
        self.asked = 0

    def success_rate(self, model):
        self.asked += 1
        return 0.5


def rates(log, shares, stop):
    model = torch.nn.Linear(2, 2)
    config = dataclasses.replace(log.config, warmup_share=0.2)
    optimizer, schedule = optimizer_and_schedule(model, 0.5, config, log)
    found = []
    for share in shares:
        log.ledger.trained_tokens = int(log.start + share * (stop - log.start))
        optimizer.step()
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"] / 0.5)
    return found


def test_the_learning_rate_warms_up_and_falls_to_its_floor_in_tokens(make_log):
    log = make_log(budget=1000)
    found = rates(log, [0.01, 0.05, 0.1, 0.199, 0.2, 0.5, 1.0, 1.5], 1000)
    line = [1 - (1 - FLOOR) * share for share in (0.2, 0.5, 1.0, 1.0)]
    assert found == pytest.approx([0.1, 0.25, 0.5, 0.995, *line], abs=1e-9)
    assert found[-1] == pytest.approx(FLOOR)


def test_the_schedule_of_a_phase_begins_where_the_phase_does(make_log):
    log = make_log(budget=1000)
    log.ledger.context_tokens, log.start = 0, 400
    assert rates(log, [0.05, 0.2, 1.0], 1000) == pytest.approx([0.25, 0.82, FLOOR])


def test_only_parameters_that_train_are_in_the_optimiser(make_log):
    model = torch.nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    log = make_log(budget=10)
    optimizer, _ = optimizer_and_schedule(model, 0.1, log.config, log)
    assert [p is model.weight for g in optimizer.param_groups for p in g["params"]] == [True]
    assert optimizer.param_groups[0]["weight_decay"] == log.config.weight_decay


@pytest.mark.parametrize(("points", "expected"), [(2, 2), (3, 3), (6, 6)])
def test_validation_points_divide_the_budget_with_first_and_last(make_log, points, expected):
    log = make_log(budget=1000, validation_points=points)
    log.validation = Counted()
    for update in range(101):
        log.ledger.trained_tokens = 10 * update
        log.validate(None, update)
    assert log.validation.asked == expected
    tokens = [row["tokens"] for row in log.rows]
    assert tokens == [round(1000 * i / (points - 1)) for i in range(points)]


def test_a_point_that_a_large_update_jumps_over_is_played_once(make_log):
    log = make_log(budget=1000, validation_points=6)
    log.validation = Counted()
    for update, tokens in enumerate((0, 50, 700, 710, 1200)):
        log.ledger.trained_tokens = tokens
        log.validate(None, update)
    assert [row["tokens"] for row in log.rows] == [0, 700, 1200]


def test_a_validation_joins_the_row_of_its_update(make_log):
    log = make_log(budget=10)
    log.row(1, success_rate=0.25)
    log.validation = Counted()
    log.validate(None, 1)
    assert [(r["success_rate"], r["val_success_rate"]) for r in log.rows] == [(0.25, 0.5)]


def test_progress_adds_up_to_one(make_log):
    log, told = make_log(budget=100), []
    log.tick = told.append
    for tokens in (30, 30, 90, 140):
        log.ledger.trained_tokens = tokens
        log.progress()
    assert told == pytest.approx([0.3, 0.0, 0.6, 0.1])


def test_the_ledger_s_total_is_sampled_read_and_trained_tokens():
    ledger = Ledger(1, 20, 300, 4000, 50000, 6)
    assert ledger.total_tokens == ledger.as_dict()["total_tokens"] == 4320
    ledger.add(Ledger(1, 1, 1, 1, 1, 1))
    assert list(ledger.as_dict().values()) == [2, 21, 301, 4001, 50001, 7, 4323]


@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.parametrize("blocks", [1, 2])
def test_pieces_hold_every_row_once_keep_pairs_together_and_cut_padding(count, blocks):
    first = torch.tensor([5, 2, 9, 2, 7, 1, 4][:count])
    lengths = torch.cat([first + 2 * block for block in range(blocks)])
    batch = {
        "attention_mask": (torch.arange(12) < lengths[:, None]).long(),
        "row": torch.arange(count * blocks),
        "once": torch.arange(count),
    }
    seen = []

    def loss(piece):
        seen.append(piece)
        assert piece["attention_mask"].shape == (len(piece["row"]), lengths[piece["row"]].max())
        assert piece["attention_mask"].sum(1).equal(lengths[piece["row"]])
        assert piece["row"].equal(torch.cat([piece["once"] + count * b for b in range(blocks)]))
        return piece["row"].sum()

    assert loss_in_pieces(loss, batch, count) == batch["row"].sum()
    assert torch.cat([piece["once"] for piece in seen]).sort()[0].equal(batch["once"])
    widths = [piece["attention_mask"].shape[1] for piece in seen]
    assert widths == sorted(widths) and len(seen) == min(2, count)


def test_p41_the_arguments_that_all_methods_share_switch_nothing_on(study):
    found = common_arguments(study.train, 3)
    assert (found["bf16"], found["fp16"], found["gradient_checkpointing"]) == (False,) * 3
    assert (found["save_strategy"], found["eval_strategy"], found["report_to"]) == ("no", "no", [])
    assert (found["seed"], found["data_seed"]) == (3, 3)


class Peak:
    """Success on validation that is perfect half-way and poor at the end."""

    def __init__(self):
        self.rates = iter([0.2, 1.0, 0.6, 0.1])

    def success_rate(self, model):
        return next(self.rates)


def test_p54_a_peak_on_validation_neither_ends_a_run_nor_is_gone_back_to(make_log):
    log = make_log(budget=900, validation_points=4)
    log.validation = Peak()
    callback, control, model = BudgetCallback(log), TrainerControl(), torch.nn.Linear(2, 2)
    log.validate(model, 0)
    steps = 0
    while not control.should_training_stop:
        steps += 1
        with torch.no_grad():
            model.weight.fill_(steps)
        log.ledger.trained_tokens += 100
        callback.on_step_end(None, TrainerState(global_step=steps), control, model=model)
        assert (model.weight == steps).all()
    assert steps == 9
    validated = [r["val_success_rate"] for r in log.rows if r["val_success_rate"] is not None]
    assert validated == [0.2, 1.0, 0.6, 0.1]
    assert (log.rows[-1]["update"], log.rows[-1]["val_success_rate"]) == (9, 0.1)
