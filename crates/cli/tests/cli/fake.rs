//! A server that answers what a test wants: what a broken or hostile one says, and one that dies half way.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_wire::{Flags, Header, Message, write_op_msg};

/// Answers commands by `answer`; none hangs up. Gives the URI.
pub fn serve(answer: impl Fn(&Document) -> Option<Document> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("mongodb://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, answer) = (stream.unwrap(), answer.clone());
            std::thread::spawn(move || converse(stream, &*answer));
        }
    });
    uri
}

fn converse(mut stream: TcpStream, answer: &impl Fn(&Document) -> Option<Document>) {
    let mut head = [0; Header::BYTES];
    while stream.read_exact(&mut head).is_ok() {
        let header = Header::parse(&head).unwrap();
        let mut frame = head.to_vec();
        frame.resize(header.length, 0);
        stream.read_exact(&mut frame[Header::BYTES..]).unwrap();
        let Ok((_, Message::Msg(message))) = Message::parse(&frame) else { panic!("no OP_MSG") };
        let Some(reply) = answer(&RawDocument::to_document(message.body)) else { return };
        let mut out = Vec::new();
        write_op_msg(&mut out, 1, header.request_id, Flags::NONE, reply.as_raw(), &[]);
        if stream.write_all(&out).is_err() {
            return;
        }
    }
}
