//! Logins: a message is refused or answered, and nobody gets in without the password, whatever he sends.

use kilim_auth::{ClientFirst, Credential, Mechanism, ServerExchange};

pub fn check(input: &[u8]) {
    // Few inputs look like a first message by themselves, so they are put into one as well.
    let (user, nonce) = input.split_at(input.len() / 2);
    let inside = [b"n,,n=", user, b",r=12345678", nonce].concat();
    for first in [input, &inside] {
        for mechanism in [Mechanism::ScramSha1, Mechanism::ScramSha256] {
            let Some(first) = ClientFirst::parse(first) else { continue };
            assert!(!first.user.is_empty());
            let credential = Credential::of_nobody(mechanism, b"secret", &first.user, 15_000);
            let (exchange, answer) = ServerExchange::begin(mechanism, first, credential, true, &[7; 24]);
            let answer = String::from_utf8(answer).expect("an answer is a text");
            let nonce = answer.strip_prefix("r=").and_then(|rest| rest.split(',').next());
            let nonce = nonce.expect("an answer begins with the nonce");
            let proofs = [
                input.to_vec(),
                [format!("c=biws,r={nonce},p=").as_bytes(), input].concat(),
                [b"c=", input, format!(",r={nonce},p=AAAA").as_bytes()].concat(),
                format!("c=biws,r={nonce},p={}=", "A".repeat(27)).into_bytes(),
                format!("c=biws,r={nonce},p={}=", "A".repeat(43)).into_bytes(),
            ];
            for proof in proofs {
                assert!(exchange.finish(&proof).is_none(), "nobody knows the password");
            }
        }
    }
}
