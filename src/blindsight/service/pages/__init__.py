"""The page: five tabs on which a person sees what each side of every part sees."""

from blindsight.service.pages.routes import page_router

__all__ = ["page_router"]
