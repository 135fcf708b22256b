"""Pairwise-masked secure aggregation: the aggregator adds vectors it cannot read, and no other party decrypts anything.

*The guarantee.* Of n users up to c may collude with an aggregator that lies as it likes; t users must help to unmask a
sum, with 2t > n + c and t - c >= 2 (`keys.threshold`, `keys.colluders`). Every upload looks uniformly random whatever
the update is. Of the updates of the others the aggregator learns one sum a round, of at least t - c of them, or
nothing. One that follows the protocol learns no more with up to t - 1 users, short of all but one. With fewer than t
left a round is given up, and repeated with new masks.

*Why.* An upload wears two locks: its own mask, and masks shared with the others. Shares of the seed open the first,
shares of the mask key the second. A user reveals its shares once a round: of the seeds of those in U3, of the mask keys
of the rest, and only if t users have signed the very set U3 (and directory) that it signed itself.

1. *One set.* Honest users sign one set a round. Two sets would take 2t signatures, of which at most c are by users that
   sign both: 2t <= n + c. So all honest users reveal for the same U3, hence one kind of share of each upload, and the c
   others hold fewer than t of the other kind.
2. *Enough in it.* U3 has t signers, so t - c >= 2 honest users at least.
3. *All of it or nothing.* An aggregator may also tell users different U2. A signer has masks with all of U3, or it
   would not have signed. A user v of U3 that has not signed was told of t users at least, itself among them. If k
   honest users of U3 have not signed, U3 has t + k users, so v was told of 2t + k - n > c + k of them: one is an honest
   signer w. The mask between v and w goes only with w's upload, and w's masks only with all of U3. With different
   directories nobody gets so far: shares sealed under another one do not open, and two of them take 2t users again.

t counts all users of the run, not those of a round: the aggregator could choose a small round with c users of its own.

K. Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4; all keys
are fresh in every round, and one round is

    paper                    here
    0 AdvertiseKeys          `MaskUser.advertise`, `MaskServer.directory`     U1: who has keys
    1 ShareKeys              `MaskUser.share`, `MaskServer.deliveries`        U2: whose secrets are shared out
    2 MaskedInputCollection  `MaskUser.mask`, `MaskServer.survivors`          U3: whose upload is in the sum
    3 ConsistencyCheck       `MaskUser.sign`, `MaskServer.request`            U4: who signed U3
    4 Unmasking              `MaskUser.unmask`, `MaskServer.result`           the sum over U3

    symbol                   here
    y_u = x_u + PRG(b_u) + sum_{u<v} PRG(s_uv) - sum_{v<u} PRG(s_uv)          `keys.RoundKeys.masked`
    b_u, s_u^SK, c_u^SK      `RoundKeys`: seed of the self-mask, mask key, channel key
    PRG, KA.agree            `expansion`: AES-256 in counter mode, X25519 + HKDF
    SS.share, SS.recon       `shamir`
    t                        `threshold`
    sigma'_u                 `messages.Consistency`
"""
