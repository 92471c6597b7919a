//! A command that waits without a thread: the `getMore` of a change stream that has nothing to show yet.
//!
//! What it holds stays with its connection ([`Client`](crate::Client)), and whoever serves the connection runs the same
//! request again once the wait is over. The operation is the same all the while, and the cursor is in use: both are
//! shown, killed and ended as those of a thread that sleeps.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use kilim_engine::cursor::{Cursor, CursorSource};
use kilim_engine::operation::Operation;
use kilim_engine::{CommitTime, Engine};

pub struct Suspended {
    engine: Arc<Engine>,
    pub(crate) operation: Arc<Operation>,
    cursor_id: i64,
    /// None once it is gone on with.
    cursor: Option<Box<Cursor>>,
    /// Up to which commit the stream has looked.
    seen: CommitTime,
    pub(crate) until: Instant,
    /// Since when it waits, and how long it had waited before.
    since: Instant,
    waited_before: Duration,
}

impl Suspended {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        operation: &Arc<Operation>,
        (cursor_id, mut cursor): (i64, Box<Cursor>),
        seen: CommitTime,
        until: Instant,
        waited_before: Duration,
    ) -> Suspended {
        cursor.rest();
        let (engine, operation, since) = (engine.clone(), operation.clone(), Instant::now());
        Suspended { engine, operation, cursor_id, cursor: Some(cursor), seen, until, since, waited_before }
    }

    /// How long the request has waited in all.
    pub(crate) fn waited(&self) -> Duration {
        self.waited_before + self.since.elapsed()
    }

    /// The cursor, to go on with. What it holds counts as the operation's again.
    pub(crate) fn take_cursor(&mut self) -> Option<Box<Cursor>> {
        let mut cursor = self.cursor.take()?;
        cursor.go_on();
        Some(cursor)
    }

    /// Whether the request is to be run again: there is something to show, or nothing more to wait for.
    pub fn is_over(&self, now: Instant) -> bool {
        let has_news = |cursor: &Cursor| match &cursor.source {
            CursorSource::Stream(stream) => stream.subscription.has_news(self.seen),
            _ => true,
        };
        now >= self.until
            || self.cursor.as_deref().is_none_or(has_news)
            || self.operation.check().is_err()
            || self.engine.operations.is_ending()
            || self.engine.cursors.is_killed(self.cursor_id)
    }

    /// When it is over at the latest.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Has a waker called once the wait may be over. Ask [`Suspended::is_over`] afterwards.
    pub fn leave_waker(&self, waker: &Waker) {
        if let Some(CursorSource::Stream(stream)) = self.cursor.as_ref().map(|cursor| &cursor.source) {
            stream.subscription.leave_waker(self.operation.connection, waker);
        }
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let Some(cursor) = &self.cursor else { return };
        // Nobody goes on with it: the connection has ended, or may no longer read it.
        if let CursorSource::Stream(stream) = &cursor.source {
            stream.subscription.take_waker_back(self.operation.connection);
        }
        self.engine.cursors.forget(self.cursor_id);
        self.engine.operations.end(&self.operation);
    }
}
