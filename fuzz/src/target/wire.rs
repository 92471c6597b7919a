//! Frames: refused or read, never more; a message that was read is written as it was.

use kilim_wire::{Flags, Message, write_op_msg};

pub fn check(input: &[u8]) {
    // A frame knows its length; the fuzzer need not guess it.
    let mut frame = input.to_vec();
    if let (Ok(length), true) = (i32::try_from(frame.len()), frame.len() >= 4) {
        frame[..4].copy_from_slice(&length.to_le_bytes());
    }
    let Ok((header, Message::Msg(message))) = Message::parse(&frame) else { return };
    crate::walk(message.body);
    if message.flags.contains(Flags::CHECKSUM_PRESENT) {
        return;
    }
    let mut written = Vec::new();
    write_op_msg(
        &mut written,
        header.request_id,
        header.response_to,
        message.flags,
        message.body,
        &message.sequences,
    );
    let (_, again) = Message::parse(&written).map_err(drop).expect("what was written can be read");
    let Message::Msg(again) = again else { panic!("a message became something else") };
    assert_eq!(again.body.as_bytes(), message.body.as_bytes());
    assert_eq!(again.sequences.len(), message.sequences.len());
}
