//! The words of copies: how many are as in the image, and the new ones, told apart by what they are: nothing, what lies near
//! on the stack, anything else.
//!
//! Most words that unwinding needs are addresses of the stack itself, not far from where they stand. Eight bytes of each
//! hide that from zstd, and stand between return addresses, which repeat in the same order.

use rkyv::{Archive, Serialize};

use crate::MAX_RAW_LEN;
use crate::copies::{MAX_RUNS, Run, StackCopies, WORD};
use crate::error::Invalid;
use crate::v1::column::{apply, difference, pack, unpack_as};

/// Most words: as many as fit a chunk whole.
const MAX_WORDS: usize = MAX_RAW_LEN / size_of::<u64>();

/// Words of distance below which words are near: four bytes of seven bits, one of them for the sign.
const NEAR: u64 = 1 << 27;

/// The word is 0.
const ZERO: u8 = 0;
/// The address of a word near the word's own place.
const CLOSE: u8 = 1;
/// Any other.
const OTHER: u8 = 2;

/// Runs, and new words by what they are.
#[derive(Archive, Serialize)]
pub(crate) struct Words {
    pub(crate) runs: u32,
    pub(crate) words: u32,
    pub(crate) same: Vec<u8>,
    pub(crate) new: Vec<u8>,
    pub(crate) kind: Vec<u8>,
    /// Not a column: of each near word its distance in words, seven bits a byte, lowest first, the highest bit set where
    /// more follow.
    pub(crate) near: Vec<u8>,
    /// Not a column: the others, of eight bytes each.
    pub(crate) other: Vec<u8>,
}

/// The distance from `base` in words with its sign in the lowest bit, where it is one that is near.
fn distance(base: u64, word: u64) -> Option<u64> {
    let is_whole = word.wrapping_sub(base).is_multiple_of(WORD);
    let distance = difference(base / WORD, word / WORD);
    (is_whole && distance < NEAR << 1).then_some(distance)
}

pub(super) fn encode(copies: &StackCopies) -> Result<Words, Invalid> {
    let mut words = copies.words.iter();
    let (mut kinds, mut near, mut other) = (Vec::new(), Vec::new(), Vec::new());
    copies.each_new_word(|base| {
        let &word = words.next().ok_or(Invalid::Rows)?;
        if word == 0 {
            kinds.push(ZERO);
        } else if let Some(distance) = distance(base, word) {
            kinds.push(CLOSE);
            put(&mut near, distance);
        } else {
            kinds.push(OTHER);
            other.extend_from_slice(&word.to_le_bytes());
        }
        Ok(())
    })?;
    Ok(Words {
        runs: u32::try_from(copies.runs.len()).map_err(|_| Invalid::Rows)?,
        words: u32::try_from(kinds.len()).map_err(|_| Invalid::Rows)?,
        same: pack(copies.runs.iter().map(|run| run.same)),
        new: pack(copies.runs.iter().map(|run| run.new)),
        kind: pack(kinds),
        near,
        other,
    })
}

/// The words of copies whose other columns are unpacked already.
pub(super) fn decode(a: &ArchivedWords, copies: &mut StackCopies) -> Result<(), Invalid> {
    copies.runs = decode_runs(a)?;
    copies.words = decode_words(a, copies)?;
    Ok(())
}

fn decode_runs(a: &ArchivedWords) -> Result<Vec<Run>, Invalid> {
    let runs = a.runs.to_native() as usize;
    if runs > MAX_RUNS {
        return Err(Invalid::Rows);
    }
    let same: Vec<u32> = unpack_as(&a.same, runs)?;
    let new: Vec<u32> = unpack_as(&a.new, runs)?;
    let pairs = same.into_iter().zip(new);
    Ok(pairs.map(|(same, new)| Run { same, new }).collect())
}

fn decode_words(a: &ArchivedWords, copies: &StackCopies) -> Result<Vec<u64>, Invalid> {
    let count = a.words.to_native() as usize;
    if count > MAX_WORDS {
        return Err(Invalid::Rows);
    }
    let (other, rest) = a.other.as_chunks::<{ size_of::<u64>() }>();
    if !rest.is_empty() {
        return Err(Invalid::Column);
    }
    let kinds: Vec<u8> = unpack_as(&a.kind, count)?;
    let (mut kinds, mut near, mut other) = (kinds.iter(), a.near.iter(), other.iter());
    let mut words = Vec::with_capacity(count);
    copies.each_new_word(|base| {
        let word = match *kinds.next().ok_or(Invalid::Rows)? {
            ZERO => 0,
            CLOSE => {
                let distance = take(&mut near).ok_or(Invalid::Column)?;
                let word = apply(base / WORD, distance).wrapping_mul(WORD);
                word.wrapping_add(base % WORD)
            }
            OTHER => u64::from_le_bytes(*other.next().ok_or(Invalid::Rows)?),
            _ => return Err(Invalid::Value),
        };
        words.push(word);
        Ok(())
    })?;
    if kinds.next().is_none() && near.next().is_none() && other.next().is_none() {
        Ok(words)
    } else {
        Err(Invalid::Rows)
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    let [low, ..] = (number & 0x7f).to_le_bytes();
    number >>= 7;
    if number == 0 {
        bytes.push(low);
    } else {
        bytes.push(low | 0x80);
        put(bytes, number);
    }
}

/// A number of four bytes at most.
fn take<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<u64> {
    let mut number = 0;
    for place in 0..4 {
        let byte = *bytes.next()?;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
