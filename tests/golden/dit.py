"""diffusers' loss and norm of all gradients of a small DiT, for program/test_dit.py, which records them; weights and records are formulas.

    python tests/golden/dit.py                # prints the numbers; needs torch and diffusers
Relies on: golden/families.py. Relied on by: program/test_dit.py, by its formulas; people."""
import math

CONFIG = dict(num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=2, sample_size=6, patch_size=2, num_embeds_ada_norm=3)
ROWS, TIMES, LABELS = 4, [0, 999, 37, 500], [0, 3, 1, 2]
SETTINGS = {"linear": ["betas=linear"], "scaled": ["betas=scaled_linear", "beta_start=0.00085", "beta_end=0.012"]}


def numbers(k, n):
    """n numbers without a pattern, the same in any language."""
    return [0.25 * math.sin(0.7 * k + 1.3 * i + 0.001 * i * i) for i in range(n)]


def weights(shapes):
    """Of the tensors by name."""
    return {name: numbers(k, math.prod(shapes[name])) for k, name in enumerate(sorted(shapes))}


def records():
    """Latents and noise of [ROWS,4,6,6]."""
    return [[4 * x for x in numbers(k, ROWS * 4 * 36)] for k in (100, 200)]


def main():
    import diffusers
    import torch
    from families import noise_loss
    model = diffusers.DiTTransformer2DModel(**CONFIG).eval().double()
    state = model.state_dict()
    values = weights({k: tuple(t.shape) for k, t in state.items()})
    model.load_state_dict({k: torch.tensor(values[k], dtype=torch.float32).double().view(t.shape) for k, t in state.items()})
    latents, noise = (torch.tensor(x, dtype=torch.float32).double().view(ROWS, 4, 6, 6) for x in records())
    for name, (betas, *_) in SETTINGS.items():
        model.zero_grad()
        beta = {"linear": (1e-4, 0.02), "scaled": (0.00085, 0.012)}[name]
        loss = noise_loss(model, betas.split("=")[1], latents, torch.tensor(LABELS), noise, torch.tensor(TIMES), *beta)
        loss.backward()
        norm = torch.sqrt(sum(p.grad.square().sum() for p in model.parameters() if p.grad is not None))
        print('"%s": (%.9g, %.9g)' % (name, loss.item(), norm.item()))


if __name__ == "__main__":
    main()
