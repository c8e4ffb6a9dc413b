//! Numbers from standard input, as they come: what is there is worked on together, and nothing is waited for.

use std::io::{self, BufRead};
use std::mem;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rawstack_symbolizer::watch::no_way_back;

/// Numbers that are worked on together; a longer input is taken in pieces.
const BATCH: usize = 1 << 20;
/// Pieces that may wait.
const QUEUE: usize = 64;
/// Time without input after which what came is worked on.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest word; a longer one is no number.
const MAX_WORD: usize = 64;

/// Read standard input in the background.
pub(super) fn from_standard_input() -> Result<Batches> {
    let (sender, receiver) = mpsc::sync_channel(QUEUE);
    // It ends with the input, or with the program.
    let reader = thread::Builder::new().spawn(move || {
        no_way_back();
        if let Err(error) = read(&mut io::stdin().lock(), &sender) {
            let _ = sender.send(Err(error));
        }
    });
    reader.context("failed to start a thread; free memory or raise the limit of processes")?;
    Ok(Batches { receiver })
}

/// Numbers, batch by batch.
#[derive(Debug)]
pub(super) struct Batches {
    receiver: Receiver<Result<Vec<u64>>>,
}

impl Batches {
    /// The numbers that have come, or nothing at the end; waits for the first.
    ///
    /// An error comes behind the numbers before it, which `name` is given first.
    pub(super) fn next(&self, name: &mut dyn FnMut(&[u64]) -> Result<()>) -> Result<bool> {
        let mut batch = Vec::new();
        let end = loop {
            let more = if batch.is_empty() {
                let ended = |_| RecvTimeoutError::Disconnected;
                self.receiver.recv().map_err(ended)
            } else {
                self.receiver.recv_timeout(PAUSE)
            };
            match more {
                Ok(Ok(mut numbers)) => batch.append(&mut numbers),
                Ok(Err(error)) => break Err(error),
                Err(RecvTimeoutError::Timeout) => break Ok(true),
                Err(RecvTimeoutError::Disconnected) => break Ok(false),
            }
            if batch.len() >= BATCH {
                break Ok(true);
            }
        };
        if !batch.is_empty() {
            name(&batch)?;
        }
        end
    }
}

/// Send what stands in `input`, in pieces as they come.
fn read(input: &mut dyn BufRead, sender: &SyncSender<Result<Vec<u64>>>) -> Result<()> {
    let mut word = Vec::new();
    loop {
        let bytes = input
            .fill_buf()
            .context("failed to read numbers from standard input")?;
        let length = bytes.len();
        let mut numbers = Vec::new();
        for &byte in bytes {
            if !byte.is_ascii_whitespace() {
                word.push(byte);
            }
            let ends = byte.is_ascii_whitespace() || word.len() > MAX_WORD;
            if ends && !word.is_empty() {
                match parse(&String::from_utf8_lossy(&mem::take(&mut word))) {
                    Ok(number) => numbers.push(number),
                    Err(error) => {
                        let _ = sender.send(Ok(numbers));
                        return Err(error);
                    }
                }
            }
        }
        if length == 0 && !word.is_empty() {
            numbers.push(parse(&String::from_utf8_lossy(&word))?);
        }
        if (!numbers.is_empty() && sender.send(Ok(numbers)).is_err()) || length == 0 {
            return Ok(());
        }
        input.consume(length);
    }
}

/// A hexadecimal number, with or without 0x.
pub(super) fn parse(text: &str) -> Result<u64> {
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    u64::from_str_radix(digits, 16).with_context(|| {
        let shown: String = text.chars().take(32).filter(|c| !c.is_control()).collect();
        format!("failed to read number `{shown}`: give hexadecimal digits, with or without 0x")
    })
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    /// Read `text` through a buffer of `size` bytes; gives the numbers and whether it ended well.
    fn numbers(text: &str, size: usize) -> (Vec<u64>, bool) {
        let (sender, receiver) = mpsc::sync_channel(1000);
        let ended = read(
            &mut BufReader::with_capacity(size, text.as_bytes()),
            &sender,
        );
        drop(sender);
        let all = receiver.iter().flatten().flatten();
        (all.collect(), ended.is_ok())
    }

    /// Check that numbers are whole wherever the input is cut, and that those before a wrong word count.
    #[test]
    fn cut_anywhere() {
        for size in 1..12 {
            let (all, ended) = numbers("401016\n\n  0x4010AA\t7", size);
            assert_eq!(
                (all, ended),
                (vec![0x40_1016, 0x40_10aa, 7], true),
                "{size}"
            );
            let (before, ended) = numbers("1 2 main 3", size);
            assert_eq!((before, ended), (vec![1, 2], false), "{size}");
        }
        let endless = "1".repeat(1 << 20);
        assert_eq!(numbers(&endless, 4096), (Vec::new(), false));
        assert_eq!(numbers("", 16), (Vec::new(), true));
    }
}
