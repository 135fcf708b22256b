"""Everything at once, small: one row per question, the same for the same seed."""

import json

from blindsight.audit.leakage.study import study_leakage


def test_a_study_answers_every_question(digits):
    reports = []
    study = study_leakage(
        digits.private,
        digits.public,
        victims=4,
        false_alarm=0.5,
        key_bits=1024,
        insecure=True,
        random_state=0,
        progress=lambda *step: reports.append(step),
    )
    findings = study.findings()
    assert len(findings) == 4 + 25 + 15 + 6
    assert {finding.verdict for finding in findings} >= {"as stated", "not refuted"}
    assert json.loads(json.dumps([finding.to_dict() for finding in findings]))
    assert {what for what, _, _ in reports} >= {"guessing settings", "attacking schemes", "a round of sparse updates"}
    assert all(done <= total for _, done, total in reports)
