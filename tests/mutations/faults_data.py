"""Instances, splits and what is chosen on them."""

from tests.mutations.fault import (
    ARMS,
    ENGINE,
    LOOP,
    T_ARMS,
    T_ENGINE,
    T_EVALUATE,
    T_INSTANCES,
    T_LOOP,
    T_REPORT,
    Fault,
)

FAULTS = (
    Fault(
        "P50-ranges",
        "training and validation walk through the same seeds",
        "agent_rl/tasks/instances.py",
        '    "val": 10_000_000,\n',
        '    "val": 0,\n',
        (T_INSTANCES + "test_p50_no_two_splits_walk_through_the_same_seeds",),
    ),
    Fault(
        "P50-beyond",
        "a split walks on into the seeds of the next",
        "agent_rl/tasks/instances.py",
        "    return min([budget, *(start - seed_start[split] for start in later)])\n",
        "    return budget + 0 * len(later)\n",
        (T_INSTANCES + "test_p50_a_split_stops_before_the_seeds_of_the_next",),
    ),
    Fault(
        "P50-overlap",
        "an overlap of two splits is not counted",
        "agent_rl/tasks/instances.py",
        "    return sum(len(where) > 1 for where in splits.values())\n",
        "    return sum(len(where) > 2 for where in splits.values())\n",
        (T_INSTANCES + "test_p50_a_planted_duplicate_is_detected",),
    ),
    Fault(
        "P51-repeats",
        "a start that another split holds is taken again",
        "agent_rl/tasks/instances.py",
        "    if digest in taken:\n",
        "    if digest in taken and not digest:\n",
        (T_INSTANCES + "test_p51_no_two_instances_share_a_hash_and_repeats_were_met",),
    ),
    Fault(
        "P51-symmetry",
        "a rotated room is another instance",
        "agent_rl/tasks/babyai/scenes.py",
        "            self._hash = min(digests)\n",
        "            self._hash = digests[0]\n",
        (
            T_INSTANCES
            + "test_p51_rotated_worlds_share_a_hash_and_a_text_and_others_do_not[GoToLocal]",
        ),
    ),
    Fault(
        "P53-hash",
        "another instance than the list names is played",
        ENGINE,
        "        if found != episode.instance_hash:\n",
        "        if not found:\n",
        (
            T_ENGINE + "test_p53_another_instance_than_the_list_says_stops_the_run",
            T_EVALUATE + "test_p53_a_list_that_was_made_under_other_settings_is_refused",
        ),
    ),
    Fault(
        "P53-drawn",
        "each policy is evaluated on a draw of its own",
        "agent_rl/stages/evaluate.py",
        "        chosen = [i for i in instances if i.split == split]\n",
        "        chosen = [i for i in instances if i.split == split]\n"
        "        chosen = chosen[len(contender.method) % 2 :: 2]\n",
        (T_EVALUATE + "test_p53_every_policy_plays_the_listed_instances_in_their_order",),
    ),
    Fault(
        "P54-stop",
        "a run ends at its best moment on validation",
        LOOP,
        "        if log.done:\n            control",
        '        if log.done or (log.rows and log.rows[-1]["val_success_rate"] == 1.0):\n'
        "            control",
        (T_LOOP + "test_p54_a_peak_on_validation_neither_ends_a_run_nor_is_gone_back_to",),
    ),
    Fault(
        "P54-trial",
        "a trial is judged by its best validation",
        "agent_rl/stages/tune.py",
        'validated[-1] if record["status"]',
        'max(validated) if record["status"]',
        (
            "tests/stages/test_tune.py::"
            "test_p54_a_trial_is_worth_what_it_ends_with_and_not_its_best_moment",
        ),
    ),
    Fault(
        "P54-report",
        "the report judges a run by its best validation",
        "agent_rl/reporting/summary.py",
        '.groupby("seed").last()\n',
        '.groupby("seed").max()\n',
        (T_REPORT + "test_p54_a_run_is_judged_by_its_end_and_not_by_its_best_moment",),
    ),
    Fault(
        "P54-arm",
        "the arm to report is the one that is best on test",
        "agent_rl/reporting/summary.py",
        '        return max(arms, key=lambda arm: validation[arm]), "validation"\n',
        "        best = max(arms, key=lambda arm: cell(results, task, arm).value)\n"
        '        return best, "validation"\n',
        (T_REPORT + "test_p54_the_arm_that_is_best_on_test_is_not_chosen_for_that",),
    ),
    Fault(
        "P54-split",
        "training is validated on test instances",
        ARMS,
        'self.inputs.split("val")',
        'self.inputs.split("test")',
        (
            T_ARMS
            + "test_p50_p54_training_is_validated_on_validation_instances_and_plays_no_others",
        ),
    ),
    Fault(
        "P64-settings",
        "the shifted split is played under the settings of the others",
        "agent_rl/stages/evaluate.py",
        "            task.on(split),\n",
        "            task,\n",
        (T_EVALUATE + "test_p64_a_split_is_played_under_the_settings_that_made_it",),
    ),
    Fault(
        "P69-recounted",
        "instances that are left are counted anew",
        ARMS,
        "            usable = [i for i in usable if train[i].instance_id not in dead]\n",
        "            usable = list(range(sum(i.instance_id not in dead for i in train)))\n",
        (T_ARMS + "test_p29_p69_dead_instances_are_left_out_and_the_others_keep_their_numbers",),
    ),
    Fault(
        "P50-demonstrations",
        "instances of other splits are demonstrated",
        "agent_rl/stages/demos.py",
        'if i.split == "train"]',
        'if i.split != "shifted"]',
        ("tests/stages/test_demos.py::test_p50_nothing_is_demonstrated_that_is_evaluated",),
    ),
)
