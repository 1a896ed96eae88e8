"""How each arm learns, one module per method, all on TRL's trainers.

``warmstart`` makes the base policy, ``supervised`` is SFT and rejection-sampling SFT,
``preference`` is single-turn DPO, ``grpo`` is RL over whole trajectories. ``arms`` runs one arm
with one seed; ``ledger`` counts what it cost; ``loop`` is what all of them share.
"""
