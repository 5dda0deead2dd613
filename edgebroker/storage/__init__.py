"""What is kept: byte formats and the decisions about them. Nothing here touches a disk."""
