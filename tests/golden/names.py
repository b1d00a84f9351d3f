"""What PyTorch computes for the pieces of Lua in compiler/lua/pytorch.lua: writes names.json, beside which test_names.py holds what
our programs compute. `python3 tests/golden/names.py [NAME...]`, where PyTorch is installed: all, or these alone; inputs() needs none.

Relies on: PyTorch, for names.json alone. Relied on by: tests/program/test_names.py."""
import json
import math
import os
import sys

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "names.json")
SHAPES = {"x": (2, 8, 16), "y": (2, 8, 16), "q": (2, 8, 4, 4), "k": (2, 8, 4, 4), "v": (2, 8, 4, 4), "image": (2, 3, 8, 8), "w": (16, 16), "b": (16,), "kernel": (16, 48),
          "logits": (2, 8, 32), "weights": (65536,), "ids": (2, 8), "targets": (2, 8)}
RANGES = {"weights": (0.5, 1.5), "ids": (0, 16), "targets": (0, 32)}  # others: -1 to 1
DOMAINS = [(0.05, 0.95), (-3, 3)]  # of x and y

# the first name of an entry: what PyTorch calls it
EXPRESSIONS = {
    "zeros": "torch.zeros(8,16)",
    "ones": "torch.ones(8,16)",
    "full": "torch.full((8,16),0.5)",
    "zeros_like": "torch.zeros_like(x)",
    "ones_like": "torch.ones_like(x)",
    "full_like": "torch.full_like(x,0.5)",
    "arange": "torch.arange(8)",
    "linspace": "torch.linspace(2,3,5)",
    "logspace": "torch.logspace(2,3,5)",
    "eye": "torch.eye(8)[:, :]",
    "tensor": "torch.tensor([3.5])",
    "tril": "torch.tril(x)",
    "triu": "torch.triu(x)",
    "meshgrid": "torch.meshgrid(torch.arange(8),torch.arange(16),indexing='ij')[1]",
    "add": "torch.add(x,y)",
    "sub": "torch.sub(x,y)",
    "mul": "torch.mul(x,y)",
    "div": "torch.div(x,y)",
    "neg": "torch.neg(x)",
    "pow": "torch.pow(x,3)",
    "abs": "torch.abs(x)",
    "sign": "torch.sign(x)",
    "exp": "torch.exp(x)",
    "log": "torch.log(x)",
    "sqrt": "torch.sqrt(x)",
    "rsqrt": "torch.rsqrt(x)",
    "tanh": "torch.tanh(x)",
    "sigmoid": "torch.sigmoid(x)",
    "maximum": "torch.maximum(x,y)",
    "minimum": "torch.minimum(x,y)",
    "clamp": "torch.clamp(x,-1,1)",
    "clamp_min": "torch.clamp_min(x,0)",
    "clamp_max": "torch.clamp_max(x,1)",
    "where": "torch.where(mask,x,y)",
    "lt": "torch.lt(x,y)",
    "le": "torch.le(x,y)",
    "gt": "torch.gt(x,y)",
    "ge": "torch.ge(x,y)",
    "eq": "torch.eq(x,y)",
    "ne": "torch.ne(x,y)",
    "square": "torch.square(x)",
    "reciprocal": "torch.reciprocal(x)",
    "positive": "x",
    "exp2": "torch.exp2(x)",
    "expm1": "torch.expm1(x)",
    "log2": "torch.log2(x)",
    "log10": "torch.log10(x)",
    "log1p": "torch.log1p(x)",
    "logit": "torch.logit(x)",
    "logaddexp": "torch.logaddexp(x,y)",
    "xlogy": "torch.xlogy(x,y)",
    "sinh": "torch.sinh(x)",
    "cosh": "torch.cosh(x)",
    "asinh": "torch.asinh(x)",
    "acosh": "torch.acosh(x)",
    "atanh": "torch.atanh(x)",
    "addcmul": "torch.addcmul(x,y,y,value=0.5)",
    "addcdiv": "torch.addcdiv(x,x,y,value=0.5)",
    "lerp": "torch.lerp(x,y,0.3)",
    "hypot": "torch.hypot(x,y)",
    "heaviside": "torch.heaviside(x,torch.tensor(0.))",
    "trunc": "torch.trunc(x)",
    "frac": "torch.frac(x)",
    "floor": "torch.floor(x)",
    "ceil": "torch.ceil(x)",
    "round": "torch.round(x)",
    "fmod": "torch.fmod(x,y)",
    "remainder": "torch.remainder(x,y)",
    "floor_divide": "torch.floor_divide(x,y)",
    "logical_and": "torch.logical_and(mask,other)",
    "logical_or": "torch.logical_or(mask,other)",
    "logical_not": "torch.logical_not(mask)",
    "logical_xor": "torch.logical_xor(mask,other)",
    "isnan": "torch.isnan(x)",
    "isfinite": "torch.isfinite(x)",
    "isinf": "torch.isinf(x)",
    "nan_to_num": "torch.nan_to_num(x)",
    "isclose": "torch.isclose(x,y)",
    "equal": "torch.tensor(torch.equal(x,y))",
    "sum": "torch.sum(x,-1)",
    "mean": "torch.mean(x,-1)",
    "amax": "torch.amax(x,-1)",
    "softmax": "torch.softmax(x,-1)",
    "amin": "torch.amin(x,-1)",
    "aminmax": "torch.aminmax(x,dim=-1)[1]",
    "prod": "torch.prod(x,-1)",
    "var": "torch.var(x,-1)",
    "std": "torch.std(x,-1)",
    "var_mean": "torch.var_mean(x,-1)[0]",
    "std_mean": "torch.std_mean(x,-1)[0]",
    "norm": "torch.norm(x,dim=-1)",
    "dist": "torch.dist(x,y)",
    "cdist": "torch.cdist(x,y)",
    "logsumexp": "torch.logsumexp(x,-1)",
    "any": "torch.any(mask,-1)",
    "all": "torch.all(mask,-1)",
    "count_nonzero": "torch.count_nonzero(x,-1)",
    "argmax": "torch.argmax(x,-1)",
    "argmin": "torch.argmin(x,-1)",
    "topk": "torch.topk(x,2)[0]",
    "cumsum": "torch.cumsum(x,-1)",
    "cumprod": "torch.cumprod(x,-1)",
    "logcumsumexp": "torch.logcumsumexp(x,-1)",
    "cummax": "torch.cummax(x,-1)[0]",
    "cummin": "torch.cummin(x,-1)[0]",
    "sort": "torch.sort(x,-1)[0]",
    "argsort": "torch.argsort(x,-1)",
    "msort": "torch.msort(x)",
    "median": "torch.median(x,-1)[0]",
    "nanmedian": "torch.nanmedian(x,-1)[0]",
    "mode": "torch.mode(x,-1)[0]",
    "quantile": "torch.quantile(x,0.3,-1)",
    "kthvalue": "torch.kthvalue(x,3,-1)[0]",
    "bincount": "torch.bincount(ids.flatten(),minlength=16)",
    "histc": "torch.histc(x,10,-3,3)",
    "searchsorted": "torch.searchsorted(b.sort()[0],x)",
    "bucketize": "torch.bucketize(x,b.sort()[0])",
    "diff": "torch.diff(x)",
    "trace": "torch.trace(w)",
    "reshape": "torch.reshape(x,(2,-1))",
    "view": "x.view(2,-1)",
    "permute": "torch.permute(x,(0,2,1))",
    "transpose": "torch.transpose(x,1,2)",
    "unsqueeze": "x.unsqueeze(1)",
    "squeeze": "x.unsqueeze(1).squeeze(1)",
    "flatten": "x.flatten()",
    "broadcast_to": "torch.broadcast_to(b,(2,8,16))",
    "split": "torch.split(x,8,-1)[0]",
    "chunk": "torch.chunk(x,2,-1)[0]",
    "cat": "torch.cat([x,y],1)",
    "stack": "torch.stack([x,y],1)",
    "t": "w.t()",
    "movedim": "torch.movedim(x,0,1)",
    "unflatten": "x.unflatten(-1,(4,4))",
    "narrow": "torch.narrow(x,1,2,4)",
    "select": "torch.select(x,1,3)",
    "unbind": "torch.unbind(x,1)[0][:,None]",
    "hsplit": "torch.hsplit(x,2)[0]",
    "vsplit": "torch.vsplit(x,2)[0]",
    "dsplit": "torch.dsplit(x,2)[0]",
    "hstack": "torch.hstack([x,y])",
    "vstack": "torch.vstack([x,y])",
    "dstack": "torch.dstack([x,y])",
    "tile": "torch.tile(x,(1,3,1))",
    "repeat_interleave": "torch.repeat_interleave(x,3,1)",
    "roll": "torch.roll(x,1,1)",
    "flip": "torch.flip(x,(-1,))",
    "fliplr": "torch.fliplr(w)",
    "flipud": "torch.flipud(w)",
    "diag": "torch.diag(w)",
    "diag_embed": "torch.diag_embed(b)",
    "gather": "torch.gather(x,-1,ids[...,None].long())",
    "take_along_dim": "torch.take_along_dim(x,ids[...,None].long(),-1)",
    "take": "torch.take(w,ids.long())",
    "index_select": "torch.index_select(w,1,ids.flatten())",
    "scatter_add": "torch.scatter_add(w,1,ids.reshape(1,16).long().expand(16,16),w)",
    "index_add": "torch.index_add(w,0,ids.flatten(),w)",
    "masked_fill": "torch.masked_fill(x,mask,-1e30)",
    "clone": "x.clone()",
    "matmul": "x@w",
    "addmm": "x@w+b",
    "bmm": "torch.bmm(x,y.transpose(1,2))",
    "mv": "torch.mv(w,b)",
    "dot": "torch.dot(b,b)",
    "outer": "torch.outer(b,b)",
    "baddbmm": "torch.baddbmm(torch.zeros(2,8,8),x,y.transpose(1,2))",
    "addmv": "torch.addmv(b,w,b)",
    "chain_matmul": "x@w@w",
    "einsum": "torch.einsum('bihd,bijd->bihj',q,k)",
    "tensordot": "torch.tensordot(x.reshape(16,16),w,1)",
    "kron": "torch.kron(w,w)",
    "relu": "F.relu(x)",
    "gelu": "F.gelu(x)",
    "silu": "F.silu(x)",
    "relu6": "F.relu6(x)",
    "leaky_relu": "F.leaky_relu(x)",
    "prelu": "F.prelu(x.reshape(-1,16),b).reshape(x.shape)",
    "elu": "F.elu(x)",
    "selu": "F.selu(x)",
    "softplus": "F.softplus(x)",
    "mish": "F.mish(x)",
    "softsign": "F.softsign(x)",
    "tanhshrink": "F.tanhshrink(x)",
    "hardtanh": "F.hardtanh(x)",
    "hardsigmoid": "F.hardsigmoid(x)",
    "hardswish": "F.hardswish(x)",
    "hardshrink": "F.hardshrink(x)",
    "softshrink": "F.softshrink(x)",
    "threshold": "F.threshold(x,0.1,20)",
    "logsigmoid": "F.logsigmoid(x)",
    "log_softmax": "F.log_softmax(x,-1)",
    "softmin": "F.softmin(x,-1)",
    "glu": "F.glu(x)",
    "normalize": "F.normalize(x,dim=-1)",
    "linear": "F.linear(x,w,b)",
    "embedding": "F.embedding(ids.long(),w)",
    "layer_norm": "F.layer_norm(x,(16,),b,b)",
    "rms_norm": "F.rms_norm(x,(16,),b,eps=1e-6)",
    "batch_norm": "F.batch_norm(x.reshape(16,16),torch.zeros(16),torch.ones(16),b,b,training=True)",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention(q.transpose(1,2),k.transpose(1,2),v.transpose(1,2),is_causal=True).transpose(1,2)",
    "multi_head_attention_forward": "F.scaled_dot_product_attention(q.transpose(1,2),k.transpose(1,2),v.transpose(1,2)).transpose(1,2)",
    "one_hot": "F.one_hot(ids.long(),16)",
    "embedding_bag": "F.embedding_bag(ids.long(),w)",
    "bilinear": "F.bilinear(x,y,w[None])",
    "group_norm": "F.group_norm(x,4)",
    "instance_norm": "F.instance_norm(x)",
    "conv1d": "F.conv1d(F.pad(x.transpose(1,2),(2,0)),kernel.reshape(16,3,16).permute(0,2,1)).transpose(1,2)",
    "conv2d": "F.conv2d(image,kernel.reshape(16,3,4,4),stride=4).flatten(2).transpose(1,2)",
    "max_pool1d": "F.max_pool1d(x.transpose(1,2),2).transpose(1,2)",
    "avg_pool1d": "F.avg_pool1d(x.transpose(1,2),2).transpose(1,2)",
    "max_pool2d": "F.max_pool2d(image,2)",
    "avg_pool2d": "F.avg_pool2d(image,2)",
    "adaptive_avg_pool2d": "F.adaptive_avg_pool2d(image,1)[...,0,0]",
    "interpolate": "F.interpolate(image,scale_factor=2)",
    "pad": "F.pad(x,(0,4))",
    "cosine_similarity": "F.cosine_similarity(x,y,-1)",
    "pairwise_distance": "F.pairwise_distance(x,y)",
    "cross_entropy": "F.cross_entropy(logits.reshape(-1,32),targets.reshape(-1).long())",
    "mse_loss": "F.mse_loss(x,y)",
    "nll_loss": "F.nll_loss(F.log_softmax(logits.reshape(-1,32),-1),targets.reshape(-1).long())",
    "l1_loss": "F.l1_loss(x,y)",
    "smooth_l1_loss": "F.smooth_l1_loss(x,y)",
    "binary_cross_entropy": "F.binary_cross_entropy(x,y)",
    "binary_cross_entropy_with_logits": "F.binary_cross_entropy_with_logits(x,y)",
    "kl_div": "F.kl_div(x,y)",
    "poisson_nll_loss": "F.poisson_nll_loss(x,y)",
    "gaussian_nll_loss": "F.gaussian_nll_loss(x,torch.zeros_like(x),torch.exp(y))",
    "hinge_embedding_loss": "F.hinge_embedding_loss(x,torch.where(y>0,1.,-1.))",
    "soft_margin_loss": "F.soft_margin_loss(x,y)",
    "margin_ranking_loss": "F.margin_ranking_loss(x,y,torch.ones_like(x),margin=0.1)",
    "cosine_embedding_loss": "F.cosine_embedding_loss(x.reshape(-1,16),y.reshape(-1,16),torch.ones(16))",
    "triplet_margin_loss": "F.triplet_margin_loss(x,y,-y,eps=0)",
    "view_as": "x.view_as(y)",
    "expand_as": "b.expand_as(x)",
    "T": "x.mT",
    "bool": "x.bool()",
    "repeat": "x.repeat(1,3,1)",
    "label_smoothing": "F.cross_entropy(logits.reshape(-1,32),targets.reshape(-1).long(),label_smoothing=0.1)",
    "elementwise_affine": "F.layer_norm(x,(16,))",
    "is_causal": "F.scaled_dot_product_attention(q.transpose(1,2),k.transpose(1,2),v.transpose(1,2),is_causal=True).transpose(1,2)",
    "attn_mask": "F.scaled_dot_product_attention(q.transpose(1,2),k.transpose(1,2),v.transpose(1,2),attn_mask=w[:8,:8]).transpose(1,2)",
    "key_padding_mask": "F.scaled_dot_product_attention(q.transpose(1,2),k.transpose(1,2),v.transpose(1,2),attn_mask=(ids!=0)[:,None,None]).transpose(1,2)",
    "alibi_slopes": "F.scaled_dot_product_attention(q.transpose(1,2),k.transpose(1,2),v.transpose(1,2),attn_mask=(b[:4,None,None]*(torch.arange(8)-torch.arange(8)[:,None])).masked_fill(torch.ones(8,8).triu(1)>0,-torch.inf)).transpose(1,2)",
    "RNN": "rnn()",
    "pixel_shuffle": "F.pixel_shuffle(x.reshape(2,4,4,8),2)",
    "pixel_unshuffle": "F.pixel_unshuffle(image,2)",
    "channel_shuffle": "torch.channel_shuffle(x[...,None],2)[...,0]",
}


def inputs(domain):
    """{name: numbers, or whole numbers for ids and targets}, of a linear congruence: the same everywhere."""
    out = {}
    for i, (name, shape) in enumerate(SHAPES.items()):
        low, high = DOMAINS[domain] if name in "xy" else RANGES.get(name, (-1, 1))
        state, out[name] = 77 * i + domain, []
        for _ in range(math.prod(shape)):
            state = (state * 1103515245 + 12345) % (1 << 31)
            x = low + (high - low) * (state >> 8) / (1 << 23)
            out[name].append(int(x) if name in ("ids", "targets") else x)
    return out


def main():
    import torch
    from torch.nn import functional as F
    wanted, numbers = sys.argv[1:], {}
    if wanted:
        with open(FILE) as f:
            numbers = json.load(f)["numbers"]
    for domain in range(len(DOMAINS)):
        t = {name: torch.tensor(x).reshape(SHAPES[name]) for name, x in inputs(domain).items()}

        def rnn():
            h = torch.zeros(2, 16)
            for step in range(8):
                h = torch.tanh(F.linear(t["x"][:, step], t["w"], t["b"]) + h @ t["w"].T)
            return h
        t.update(torch=torch, F=F, rnn=rnn, mask=t["x"] < t["y"], other=t["x"] > 0.4)
        for name, expression in EXPRESSIONS.items():
            if name == "binary_cross_entropy" and domain:
                continue  # of probabilities
            if wanted and name not in wanted:
                continue
            result = eval(expression, t).double()
            total = float((result.flatten() * t["weights"][:result.numel()].double()).sum())
            numbers["%s %d" % (name, domain)] = [list(result.shape), total if math.isfinite(total) else None]
    lines = ",\n".join("%s: %s" % (json.dumps(key), json.dumps(value)) for key, value in numbers.items())
    open(FILE, "w").write('{"torch": "%s", "numbers": {\n%s\n}}\n' % (torch.__version__, lines))


if __name__ == "__main__":
    main()
