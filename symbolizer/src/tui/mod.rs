//! A profile in the terminal: functions, callers and callees, flame graph, filters, search. Works over ssh: letters and
//! sixteen colours, no mouse, redrawn only when something changes.
//!
//! Takes an explored profile. What a key does is in [`State`], what is seen of it in `draw`.

mod draw;
mod flame;
mod look;
mod span;
mod state;

use std::io;

use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::error::Result;
use crate::explore::Explored;
pub use look::Look;
pub use state::{Key, Screen, State};

/// Show `data` until it is left.
pub fn run(data: &Explored<'_>, title: &str, look: Look) -> Result<()> {
    let mut state = State::new(data, title);
    let mut terminal = ratatui::try_init()?;
    let ended = show(&mut terminal, &mut state, look);
    // The terminal is given back whatever happened.
    ratatui::try_restore()?;
    Ok(ended?)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    state: &mut State<'_, '_>,
    look: Look,
) -> io::Result<()> {
    while !state.ended() {
        terminal.draw(|frame| draw::draw(frame, state, look))?;
        // Releases and moves change nothing; a new size does.
        match event::read()? {
            Event::Key(pressed) if pressed.kind != KeyEventKind::Release => {
                if let Some(key) = Key::of(&pressed) {
                    state.press(key);
                }
            }
            _ => {}
        }
    }
    Ok(())
}
