"""Pairwise-masked secure aggregation: the aggregator adds vectors it cannot read, and no other party decrypts anything.

*The guarantee.* Every upload looks uniformly random whatever the update is; the aggregator learns the sum of those who
uploaded (at least `SumTerms.minimum`) and nothing else of their updates, unless as many users as the threshold says
give it their shares. An aggregator that lies about who dropped out gains nothing: users open one of the two locks on
each upload, never both, and more than half of them must open the same one.

K. Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4, reduced
to its core: all keys are fresh in every round, and one round is

    paper                    here
    0 AdvertiseKeys          `MaskUser.advertise`, `MaskServer.directory`     U1: who has keys
    1 ShareKeys              `MaskUser.share`, `MaskServer.deliveries`        U2: whose secrets are shared out
    2 MaskedInputCollection  `MaskUser.mask`, `MaskServer.request`            U3: whose upload is in the sum
    3 ConsistencyCheck       not needed: see `threshold`
    4 Unmasking              `MaskUser.unmask`, `MaskServer.result`           the sum over U3

    symbol                   here
    y_u = x_u + PRG(b_u) + sum_{u<v} PRG(s_uv) - sum_{v<u} PRG(s_uv)          `keys.RoundKeys.masked`
    b_u, s_u^SK, c_u^SK      `RoundKeys`: seed of the self-mask, mask key, channel key
    PRG, KA.agree            `expansion`: AES-256 in counter mode, X25519 + HKDF
    SS.share, SS.recon       `shamir`
    t                        `threshold`
"""
