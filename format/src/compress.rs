//! One zstd frame per chunk: made, checked and unpacked. Knows nothing of what is inside.

use std::io;

use rkyv::util::AlignedVec;
use zstd::bulk::Decompressor;
use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe;

use crate::chunk::{MAX_RAW_LEN, u32_at};

/// First bytes of a zstd frame.
const MAGIC: u32 = 0xfd2f_b528;

/// A compressor with its context, to be used again and again.
pub(crate) struct Compressor {
    encoder: Encoder<'static>,
}

impl Compressor {
    pub(crate) fn new() -> io::Result<Self> {
        let mut encoder = Encoder::new(0)?;
        encoder.set_parameter(CParameter::ChecksumFlag(false))?;
        encoder.set_parameter(CParameter::ContentSizeFlag(true))?;
        Ok(Self { encoder })
    }

    /// Append `raw` as one zstd frame of zstd's `level` to `out`. `ends` are positions in `raw`, rising, where a new zstd block is to
    /// start: blocks have an entropy table each, so columns of different nature do not spoil each other's.
    pub(crate) fn compress(
        &mut self,
        raw: &[u8],
        (level, ends): (i32, &[usize]),
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.encoder.reinit()?;
        self.encoder
            .set_parameter(CParameter::CompressionLevel(level))?;
        self.encoder.set_pledged_src_size(Some(raw.len() as u64))?;
        let start = out.len();
        // Each block that is asked for may cost its header and what the bound allows for whole blocks only.
        let bound = zstd_safe::compress_bound(raw.len()) + 64 * (ends.len() + 1);
        out.resize(start + bound, 0);
        let mut output = OutBuffer::around(&mut out[start..]);
        let mut from = 0;
        for &end in ends.iter().filter(|&&end| end < raw.len()) {
            run_all(&mut self.encoder, &raw[from..end], &mut output)?;
            if self.encoder.flush(&mut output)? != 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            from = end;
        }
        run_all(&mut self.encoder, &raw[from..], &mut output)?;
        if self.encoder.finish(&mut output, true)? != 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let len = output.pos();
        out.truncate(start + len);
        Ok(())
    }
}

/// Feed `input` to the encoder whole.
fn run_all(
    encoder: &mut Encoder<'_>,
    input: &[u8],
    output: &mut OutBuffer<'_, [u8]>,
) -> io::Result<()> {
    let mut input = InBuffer::around(input);
    while input.pos() < input.src.len() {
        let before = (input.pos(), output.pos());
        encoder.run(&mut input, output)?;
        if (input.pos(), output.pos()) == before {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// Check what a zstd frame claims before anything is unpacked: it must be one frame that fills `stored`, must state its
/// content size, which must be `raw_len`, and may use neither a dictionary nor a window larger than any content.
pub(crate) fn is_acceptable(stored: &[u8], raw_len: usize) -> bool {
    let Some((&descriptor, rest)) = stored.get(4..).and_then(<[u8]>::split_first) else {
        return false;
    };
    let single_segment = descriptor & 0x20 != 0;
    let window_ok = single_segment
        || rest
            .first()
            .is_some_and(|&window| window_size(window) <= MAX_RAW_LEN as u64);
    let unused_bits_and_dictionary = descriptor & 0b1011;
    u32_at(stored, 0) == MAGIC
        && unused_bits_and_dictionary == 0
        && window_ok
        && raw_len <= MAX_RAW_LEN
        && zstd_safe::get_frame_content_size(stored).is_ok_and(|size| size == Some(raw_len as u64))
        && zstd_safe::find_frame_compressed_size(stored).is_ok_and(|len| len == stored.len())
}

/// Window size in bytes that a window descriptor asks for.
fn window_size(descriptor: u8) -> u64 {
    let base = 1_u64 << (10 + (descriptor >> 3));
    base + base / 8 * u64::from(descriptor & 7)
}

/// Unpack an acceptable frame into `raw`, whose old content goes. Allocates nothing beyond `raw_len` bytes.
pub(crate) fn decompress(
    decompressor: &mut Decompressor<'_>,
    stored: &[u8],
    raw_len: usize,
    raw: &mut AlignedVec,
) -> bool {
    raw.clear();
    if !is_acceptable(stored, raw_len) {
        return false;
    }
    raw.resize(raw_len, 0);
    decompressor
        .decompress_to_buffer(stored, raw.as_mut_slice())
        .is_ok_and(|len| len == raw_len)
}
