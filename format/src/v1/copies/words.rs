//! The words of copies: how many are as in the image, and the new ones, told apart by what they are: nothing, something that
//! was left out, what lies near on the stack, anything else.
//!
//! Most words that unwinding needs are addresses of the stack itself, not far from where they stand. Eight bytes of each
//! hide that from zstd, and stand between return addresses, which repeat in the same order.

use rkyv::{Archive, Serialize};

use crate::copies::{MAX_RUNS, MAX_WORDS, Run, StackCopies, WORD};
use crate::error::Invalid;
use crate::v1::column::{apply, difference, pack, unpack_as};

/// Words of distance below which words are near: four bytes of seven bits, one of them for the sign.
const NEAR: u64 = 1 << 27;

/// Bits of what a word is. There are as many as that tells apart, so none is unknown.
const KIND_BITS: u32 = 2;
/// Words a byte of which it is said what they are.
const KINDS: usize = (u8::BITS / KIND_BITS) as usize;

/// The word is 0.
const ZERO: u8 = 0;
/// The address of a word near the word's own place.
const CLOSE: u8 = 1;
/// Any other.
const OTHER: u8 = 2;
/// The word is 1, as in the place of what a recorder left out. With 0 it takes turns, and they are most of all: so four
/// words share a byte, where zstd finds more than in a byte each.
const ONE: u8 = 3;

/// Runs, and new words by what they are.
#[derive(Archive, Serialize)]
pub(crate) struct Words {
    pub(crate) runs: u32,
    pub(crate) words: u32,
    pub(crate) same: Vec<u8>,
    pub(crate) new: Vec<u8>,
    /// Not a column: of each new word what it is, two bits each, from the lowest on.
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
        } else if word == 1 {
            kinds.push(ONE);
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
        kind: pack_kinds(&kinds),
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
    let kinds = unpack_kinds(&a.kind, count)?;
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
            // ONE: there is no other.
            _ => 1,
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

/// Kinds of words, [`KINDS`] a byte.
pub(super) fn pack_kinds(kinds: &[u8]) -> Vec<u8> {
    let byte = |kinds: &[u8]| {
        let highest_first = kinds.iter().rev();
        highest_first.fold(0, |byte, kind| byte << KIND_BITS | kind)
    };
    kinds.chunks(KINDS).map(byte).collect()
}

/// The kinds of `count` words. The caller has bounded them.
fn unpack_kinds(bytes: &[u8], count: usize) -> Result<Vec<u8>, Invalid> {
    if bytes.len() != count.div_ceil(KINDS) {
        return Err(Invalid::Column);
    }
    let each = |byte: &u8| {
        let mut rest = *byte;
        [(); KINDS].map(|()| {
            let kind = rest & ((1 << KIND_BITS) - 1);
            rest >>= KIND_BITS;
            kind
        })
    };
    let mut kinds: Vec<u8> = bytes.iter().flat_map(each).collect();
    let behind = kinds.split_off(count);
    if behind.iter().any(|&bits| bits != 0) {
        return Err(Invalid::Value);
    }
    Ok(kinds)
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
