//! Sort specifications and the keys they order by.
