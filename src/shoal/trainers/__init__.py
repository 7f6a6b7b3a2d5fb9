"""External trainers: members trained by other libraries, in processes that may have an interpreter of their own."""
