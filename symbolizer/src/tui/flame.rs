//! The flame graph in letters: the root above, callees below, each box as wide as its weight.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::look::Look;
use super::state::State;
use crate::explore::{NO_FRAME, ViewBox};

/// Where boxes go.
struct Canvas<'b> {
    area: Rect,
    buffer: &'b mut Buffer,
    /// Weight at the left edge, and weight of the whole width.
    from: u64,
    whole: u64,
    /// Depth of the first line.
    first: u32,
}

impl Canvas<'_> {
    /// Column of a weight.
    fn column(&self, weight: u64) -> u16 {
        let width = u128::from(self.area.width);
        let within = u128::from(weight.saturating_sub(self.from).min(self.whole));
        let column = (within * width + u128::from(self.whole) / 2) / u128::from(self.whole.max(1));
        u16::try_from(column).unwrap_or(self.area.width)
    }

    fn line(&self, depth: u32) -> Option<u16> {
        let line = u16::try_from(depth.checked_sub(self.first)?).ok()?;
        (line < self.area.height).then(|| self.area.y + line)
    }
}

/// Draw the boxes that are at least a letter wide.
pub(super) fn draw(state: &State<'_, '_>, look: Look, area: Rect, buffer: &mut Buffer) {
    let zoomed = state.view.follow(&state.zoom);
    let top = state.view.get(zoomed);
    // The chosen box stays in sight.
    let chosen = state.view.get(state.chosen).depth;
    let mut canvas = Canvas {
        area,
        buffer,
        from: top.start,
        whole: top.total,
        first: (chosen + 2).saturating_sub(u32::from(area.height)),
    };
    let mut outer = state.view.parent(zoomed);
    while let Some(index) = outer {
        put(state, look, &mut canvas, index, (0, area.width));
        outer = state.view.parent(index);
    }
    let mut index = zoomed;
    while index < top.end {
        let shown = state.view.get(index);
        let (left, right) = (
            canvas.column(shown.start),
            canvas.column(shown.start.saturating_add(shown.total)),
        );
        if right <= left && index != zoomed && index != state.chosen {
            // The chosen box may be below: then this one is its caller and is gone through.
            let holds = state.chosen > index && state.chosen < shown.end;
            index = if holds {
                index + 1
            } else {
                shown.end.max(index + 1)
            };
            continue;
        }
        put(
            state,
            look,
            &mut canvas,
            index,
            (left, right.max(left + 1).min(area.width)),
        );
        index += 1;
    }
}

fn put(
    state: &State<'_, '_>,
    look: Look,
    canvas: &mut Canvas<'_>,
    index: u32,
    (left, right): (u16, u16),
) {
    let shown = state.view.get(index);
    let Some(line) = canvas.line(shown.depth) else {
        return;
    };
    let (name, flags) = name(state, &shown);
    let mut style = if shown.frame == NO_FRAME {
        Style::new().add_modifier(Modifier::BOLD)
    } else {
        look.of_box(flags)
    };
    let function = state.functions.get(shown.frame);
    if !state.search.is_empty() && function.is_some_and(|function| state.matches(function)) {
        style = style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    }
    if index == state.chosen {
        style = style.add_modifier(Modifier::REVERSED | Modifier::BOLD);
    }
    let (x, width) = (
        canvas.area.x + left,
        usize::from(right.saturating_sub(left)),
    );
    let rest = look.fill(flags).repeat(width);
    canvas.buffer.set_stringn(x, line, &rest, width, style);
    canvas
        .buffer
        .set_stringn(x, line, look.edge(), width, style);
    if width > 2 {
        canvas
            .buffer
            .set_stringn(x + 1, line, name, width - 1, style);
    }
}

pub(super) fn name<'p>(state: &State<'_, 'p>, shown: &ViewBox) -> (&'p str, u8) {
    let frame = state.data.frames.get(shown.frame as usize);
    frame.map_or(("all", 0), |frame| (frame.name, frame.flags))
}
