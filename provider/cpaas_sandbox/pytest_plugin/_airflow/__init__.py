"""The parts of the plugin that need Airflow. They are imported when a test requests a fixture of them."""
