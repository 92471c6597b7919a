//! The database without a socket: catalog, indexes, planner, operators, the one write door, sessions, cursors.

pub mod index;
