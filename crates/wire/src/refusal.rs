//! What to do with a message that cannot be parsed.
//!
//! Which fault gets which answer was asked of mongod with a raw socket. Broadly: if the frame or
//! its flags cannot be trusted the connection ends, and if only its contents are wrong the client
//! is told so and may go on.

use kilim_error::Error;

#[derive(Debug, Clone)]
pub enum Refusal {
    /// End the connection; the text is for the log.
    Close(&'static str),
    /// Answer with this error, as the opcode of the request answers; the connection goes on.
    Answer(Error),
    /// Answer with this error in the form of a failed legacy query (`$err`); the connection goes on.
    AnswerQueryFailure(Error),
    /// Say nothing; the connection goes on.
    Ignore,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Answer(error)
    }
}
