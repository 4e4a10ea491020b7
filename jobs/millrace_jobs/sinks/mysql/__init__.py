"""What the sinks of databases need to know of MySQL and MariaDB."""
