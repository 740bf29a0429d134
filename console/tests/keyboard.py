"""A person who uses a page with the keyboard only, and who must see where the focus is."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

WAIT_MS = 60_000
TABS_MAX = 200
SEEN = """node => {
    const style = getComputedStyle(node);
    return node === document.activeElement && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}"""


class Keyboard:
    """Moves through a page with Tab, and presses keys. It never uses the mouse or sets a value."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def follow(self, link: str) -> None:
        with self.page.expect_navigation():
            self.press("link", link)

    def send(self, button: str) -> None:
        with self.page.expect_navigation():
            self.press("button", button)

    def press(self, role: str, name: str, key: str = "Enter") -> None:
        self.reach(self.control(role, name))
        self.page.keyboard.press(key)

    def write(self, label: str, text: str) -> None:
        """Replace the text of a field."""
        self.reach(self.page.get_by_role("textbox", name=label))
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.type(text)

    def choose(self, label: str, choice: str) -> None:
        """Choose an option of a list by the first letters of its text."""
        box = self.page.get_by_role("combobox", name=label)
        self.reach(box)
        self.page.keyboard.type(choice)
        expect(box.locator("option:checked")).to_contain_text(choice)

    def tick(self, name: str) -> None:
        box = self.page.get_by_role("checkbox", name=name)
        self.reach(box)
        self.page.keyboard.press("Space")
        expect(box).to_be_checked()

    def ended(self, status: str = "succeeded") -> None:
        """Watch the open page of an operation until it ends, without a key."""
        badge = self.page.locator("#live .lead .badge")
        expect(badge).to_contain_text(re.compile("succeeded|failed|cancelled"), timeout=WAIT_MS)
        assert status in badge.inner_text(), self.page.locator("#main").inner_text()

    def control(self, role: str, name: str) -> Locator:
        return self.page.get_by_role(role, name=name, exact=True).and_(self.page.locator(":not([aria-disabled])"))  # type: ignore[arg-type]

    def reach(self, control: Locator) -> None:
        """Press Tab until the control has the focus, and check that people see it."""
        expect(control.first).to_be_visible(timeout=WAIT_MS)
        for _ in range(TABS_MAX):
            self.page.keyboard.press("Tab")
            if control.first.evaluate(SEEN):
                return
        pytest.fail(f"{control} cannot be reached with the keyboard, or its focus cannot be seen")
