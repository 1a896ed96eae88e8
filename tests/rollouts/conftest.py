"""Every test here may run a model."""

import pytest


@pytest.fixture(autouse=True)
def _settings_of_a_process(quiet_torch):
    pass


@pytest.fixture(scope="session")
def unpadded_logprobs():
    """Log-probabilities of a trajectory's sampled tokens from one plain forward pass of its own."""
    import torch

    def compute(model, trajectory, temperature=1.0):
        ids = torch.tensor(trajectory.token_ids.astype("int64"))[None]
        was_training = model.training
        model.eval()
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0].float()
        model.train(was_training)
        table = torch.log_softmax(logits / temperature, dim=-1)
        places = trajectory.mask.nonzero()[0]
        return logits[places - 1].numpy(), table[places - 1, ids[0, places]].numpy()

    return compute
