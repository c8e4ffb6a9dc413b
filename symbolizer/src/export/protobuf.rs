//! Fields of protocol buffers, put into bytes. Knows no message.
//!
//! Three formats need some twenty messages between them, which are written and never read: these few lines are less
//! than generated types and their library.

/// A message that grows.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Begin anew, in the same memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    fn varint(&mut self, mut number: u64) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                self.bytes.push(low & 0x7f);
                break;
            }
            self.bytes.push(low | 0x80);
        }
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    /// A number; 0 is what a field has that is left out.
    pub(super) fn number(&mut self, field: u32, number: u64) -> &mut Self {
        if number != 0 {
            self.always(field, number);
        }
        self
    }

    /// A number that is there even where it is 0.
    pub(super) fn always(&mut self, field: u32, number: u64) -> &mut Self {
        self.tag(field, 0);
        self.varint(number);
        self
    }

    /// A `fixed64`.
    pub(super) fn fixed(&mut self, field: u32, number: u64) -> &mut Self {
        self.tag(field, 1);
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Bytes, text or the bytes of another message; there even where they are empty.
    pub(super) fn part(&mut self, field: u32, part: &[u8]) -> &mut Self {
        self.tag(field, 2);
        self.varint(part.len() as u64);
        self.bytes.extend_from_slice(part);
        self
    }

    /// Text.
    pub(super) fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.part(field, text.as_bytes())
    }

    /// Another message.
    pub(super) fn message(&mut self, field: u32, make: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        make(&mut inner);
        self.part(field, &inner.bytes)
    }

    /// Numbers, packed.
    pub(super) fn numbers(
        &mut self,
        field: u32,
        numbers: impl IntoIterator<Item = u64>,
    ) -> &mut Self {
        self.message(field, |inner| {
            numbers.into_iter().for_each(|number| inner.varint(number));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the examples of the encoding's own description: a number, text, a message within, packed numbers.
    #[test]
    fn documented_examples() {
        let mut message = Message::default();
        message.number(1, 150).number(2, 0).text(2, "testing");
        message.message(3, |inner| {
            inner.number(1, 150);
        });
        message.numbers(6, [3, 270, 86_942]);
        let expected =
            b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01\x32\x06\x03\x8e\x02\x9e\xa7\x05";
        assert_eq!(message.bytes(), expected);
    }
}
