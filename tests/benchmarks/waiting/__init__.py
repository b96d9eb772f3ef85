"""How many passcodes one triggerer process can wait for."""
