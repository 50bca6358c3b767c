"""Prompts and a text written for these tests: prose, dialogue, code, lists, numbers, other languages, chat markup."""

PROMPTS = (
    "The old lighthouse keeper climbed the stairs for the last time, and",
    "<|im_start|>user\nWhy do cats purr? Answer in two sentences.<|im_end|>\n<|im_start|>assistant\n",
    "def count_vowels(text):\n    ",
    "Shopping list for Sunday dinner:\n- two onions\n- a bag of rice\n-",
    "Q: What is the boiling point of water at sea level in Fahrenheit?\nA:",
    "La capitale de la France est",
    "1, 1, 2, 3, 5, 8, 13,",
    "Dear Ms. Okafor,\n\nThank you for your letter of 3 March. I am sorry to hear that the bicycle arrived with",
    "<|im_start|>system\nYou are a terse geologist.<|im_end|>\n<|im_start|>user\nName three kinds of rock.<|im_end|>\n"
    "<|im_start|>assistant\n",
    "Once the rain stopped 🌧️, Mina opened the window. \u201cDo you smell that?\u201d she asked her brother, who",
)

LOGIT_PROMPTS = (0, 1, 7)
"""Prompts whose logits are recorded in full detail."""

PERPLEXITY_TEXT = (
    "The ferry to the island leaves twice a day in winter, and on the morning we took it there were more crates than "
    "people on board. A woman in a yellow coat counted the boxes of oranges as they were lifted over the rail, then "
    "counted them again, and wrote a number on the back of her hand. The captain did not look at her or at us. He had "
    "the face of a man who has explained the tides too many times.\n\n"
    "Halfway across, the engine changed its tone and the boat slowed. Nobody seemed worried. A boy of about nine told "
    "me that this happened every week, because the cook liked to fish over the sandbank, and the captain liked the "
    "cook's soup. Sure enough, a line went over the side, and for ten minutes we drifted while gulls argued above us. "
    "The cook caught nothing. The engine coughed, the deck shook, and the island began to grow again in the window.\n\n"
    "We had rented a room above the post office for eight days. It held two beds, a table with one short leg, and a "
    "map of the island drawn in 1951, on which someone had corrected the names of three farms in green ink. From the "
    "window you could see the harbour, the school, and the long white wall of the salt works, closed since the year "
    "my mother was born. I had come to find out what happened to the wages of the last forty workers, who were told "
    "one Friday that the money would arrive on Monday. It never did. Some families left, some stayed and kept bees, "
    "and the company moved its books to a city where nobody asked for them. My notebook was empty, my shoes were wet, "
    "and the woman in the yellow coat was already knocking at the door with a bag of oranges and a question of her own."
)

GEMMA_PROMPTS = (PROMPTS[0], PROMPTS[5], PROMPTS[9], " ".join([PERPLEXITY_TEXT, PERPLEXITY_TEXT]))
"""The last is longer than the window of Gemma's local layers."""
