//! Tables of updates, each row recorded from mongod.
