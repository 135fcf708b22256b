"""The page: tabs on which a person sees what each side of every part sees."""

from blindsight.service.pages.rendering import Pages
from blindsight.service.pages.routes import router

__all__ = ["Pages", "router"]
