"""The honest report: one self-contained HTML file, made from results only."""

from blindsight.report.page import (
    Block,
    Chapter,
    Picture,
    Plot,
    StatementBlock,
    Table,
    Text,
    render_report,
    write_report,
)

__all__ = ["Block", "Chapter", "Picture", "Plot", "StatementBlock", "Table", "Text", "render_report", "write_report"]
