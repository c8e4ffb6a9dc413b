//! Colours and signs. Kinds of code differ by what fills their boxes, too, so that colour is never needed.

use std::env;

use ratatui::style::{Color, Modifier, Style};

use crate::explore::{INLINED, KERNEL, MARKER, UNRESOLVED};

/// How much the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Colours may be used.
    pub colors: bool,
    /// Letters beyond ASCII may be used.
    pub unicode: bool,
}

impl Look {
    /// What the environment says: NO_COLOR, and the character set of the locale.
    pub fn of_environment() -> Self {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL")
            .or_else(|| set("LC_CTYPE"))
            .or_else(|| set("LANG"));
        let locale = locale.unwrap_or_default().to_lowercase();
        Self {
            colors: set("NO_COLOR").is_none(),
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// What fills the rest of a box: nothing in user code, dots where it is inlined, a raster in the kernel.
    pub(super) fn fill(self, flags: u8) -> &'static str {
        match (flags & KERNEL != 0, flags & INLINED != 0, self.unicode) {
            (true, _, true) => "░",
            (true, _, false) => ":",
            (_, true, true) => "┄",
            (_, true, false) => ".",
            _ => " ",
        }
    }

    /// The left edge of a box.
    pub(super) fn edge(self) -> &'static str {
        if self.unicode { "▏" } else { "|" }
    }

    /// A bar of `part` in `cells` cells.
    pub(super) fn bar(self, part: f64, cells: usize) -> String {
        let full = if self.unicode { '▇' } else { '#' };
        let count = (part.clamp(0.0, 1.0) * cells as f64).round();
        (0..cells)
            .map(|cell| if (cell as f64) < count { full } else { ' ' })
            .collect()
    }

    /// Colours of a box.
    pub(super) fn of_box(self, flags: u8) -> Style {
        let style = if flags & INLINED != 0 {
            Style::new().add_modifier(Modifier::ITALIC)
        } else {
            Style::new()
        };
        if !self.colors {
            return style;
        }
        let (back, fore) = if flags & MARKER != 0 {
            (Color::Reset, Color::Gray)
        } else if flags & KERNEL != 0 {
            (Color::Blue, Color::White)
        } else if flags & UNRESOLVED != 0 {
            (Color::DarkGray, Color::White)
        } else if flags & INLINED != 0 {
            (Color::LightYellow, Color::Black)
        } else {
            (Color::Yellow, Color::Black)
        };
        style.bg(back).fg(fore)
    }

    /// What is soft beside the rest.
    pub(super) fn soft(self) -> Style {
        let style = Style::new();
        if self.colors {
            style.fg(Color::DarkGray)
        } else {
            style.add_modifier(Modifier::DIM)
        }
    }

    /// What stands out.
    pub(super) fn strong(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.colors {
            style.fg(Color::Cyan)
        } else {
            style
        }
    }

    /// What is searched for.
    pub(super) fn found(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        if self.colors {
            style.fg(Color::Magenta)
        } else {
            style
        }
    }
}
